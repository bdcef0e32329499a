// Predicts a plan: when everything starts and ends under given costs. The events have the type of a
// real run's, so that prediction and measurement can be compared and drawn alike.
#pragma once
#include <string>

#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/simulate/simulation.h"
#include "pipeline/verify/progress.h"

namespace hetu {

struct SimulateOptions : Stragglers {
  int send_slots = kUnboundedSlots;  ///< matters for lowered plans only
  bool events = false;               ///< fill Simulation::events
  bool partly = false;  ///< of a plan that stops or fails the audit, what runs; no peaks then
};

/// Runs a compute-only or lowered plan on schedule.lowering.pipelines pipelines. Messages cost time
/// whether the plan is lowered or not; reductions and updates only exist in a lowered one. Throws
/// Plan if it cannot run or verify's audit refuses it, InvalidArgument if costs or options do not
/// fit it. Incomplete plans are verify's to refuse.
Simulation simulate(const Schedule& schedule, const Costs& costs,
                    const SimulateOptions& options = {});

/// The least number of send slots, not below least_send_slots, with which a step of a lowered plan
/// takes no longer by these costs than without a bound. Throws as simulate.
int ample_send_slots(const Schedule& lowered, const Costs& costs);

/// The JSON of the contract, one object.
std::string to_json(const Simulation& simulation);

}  // namespace hetu
