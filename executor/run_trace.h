// A run laid beside its plan: the measured events of all workers, and the plan simulated with their
// medians.
#pragma once
#include <string>

#include "graph/base/trace.h"
#include "pipeline/schedule.h"

namespace hetu {

/// Adds predicted events to measured ones: each recorded step once more, as the simulator runs
/// `plan` with the median time of each kind and stage, one step after the other from the first
/// one's start. The metadata get plan and costs.
Trace with_prediction(Trace measured, const Schedule& plan);

/// Writes a file beside and renames it. Throws Io.
void write_beside(const std::string& path, const std::string& text);

}  // namespace hetu
