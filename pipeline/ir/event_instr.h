// Maps an event of a trace to the instruction that it shows.
#pragma once
#include <optional>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns the instruction of an event, or nullopt if the event's kind is not a Kind of the IR.
std::optional<Instr> instr_of(const TraceEvent& event);

}  // namespace hetu
