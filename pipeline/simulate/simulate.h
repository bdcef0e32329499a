// Predicts a plan: when everything starts and ends under given costs. The events have the type of a
// real run's, so that prediction and measurement can be compared and drawn alike.
#pragma once
#include <string>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// Runs a compute-only or lowered plan on schedule.lowering.pipelines pipelines. Messages cost time
/// whether the plan is lowered or not; reductions and updates only exist in a lowered one.
/// Pipelines with lowering.servers go each at its own pace (server_run.h), the others together.
/// Throws Plan if it cannot run or verify's audit refuses it, InvalidArgument if costs or options
/// do not fit it. Incomplete plans are verify's to refuse.
Simulation simulate(const Schedule& schedule, const Costs& costs,
                    const SimulateOptions& options = {});

/// The least number of send slots, not below least_send_slots, with which a step of a lowered plan
/// takes no longer by these costs than without a bound. Throws as simulate.
int ample_send_slots(const Schedule& lowered, const Costs& costs);

/// The JSON of the contract, one object.
std::string to_json(const Simulation& simulation);

}  // namespace hetu
