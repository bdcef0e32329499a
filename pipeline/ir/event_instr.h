// From an event of a trace back to the instruction that it shows.
#pragma once
#include <optional>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The instruction of an event; nothing for what no plan holds.
std::optional<Instr> instr_of(const TraceEvent& event);

}  // namespace hetu
