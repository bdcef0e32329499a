// Predicts the run of a plan: the start and end of everything under given costs. The events have
// the same type as those of a real run. Predictions and measurements can therefore be compared, and
// drawn in the same form.
#pragma once
#include <string>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// Simulates a compute-only or lowered plan on schedule.lowering.pipelines pipelines. Messages take
/// time whether the plan is lowered or not. Reductions and updates exist only in a lowered plan.
/// With lowering.has_servers() each pipeline goes at its own pace (server_run.h). Otherwise the
/// pipelines run together.
///
/// Throws Plan if the plan can't run or the audit of verify refuses it. Throws InvalidArgument if
/// costs or options don't fit the plan. Completeness is not checked here; verify() does that.
Simulation simulate(const Schedule& schedule, const Costs& costs,
                    const SimulateOptions& options = {});

/// Returns a number of send slots, at least least_send_slots(), with which a lowered plan has the
/// same makespan under these costs as without a bound. It is the least such number if more slots
/// never make a plan slower. Throws as simulate().
int ample_send_slots(const Schedule& lowered, const Costs& costs);

/// Returns the prediction as one JSON object, as `hetu simulate` prints it.
std::string to_json(const Simulation& simulation);

}  // namespace hetu
