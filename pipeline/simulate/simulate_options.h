// Options of a prediction in addition to the plan and the costs. Part of simulate.h.
#pragma once
#include "pipeline/cost/stragglers.h"
#include "pipeline/verify/progress.h"

namespace hetu {

/// Options of simulate() and simulate_groups(), with the stragglers to inject.
struct SimulateOptions : Stragglers {
  int send_slots = kUnboundedSlots;  ///< Send slots per ordered pair of workers, for lowered plans.
  /// For plans with servers: number of servers, which share each stage's weights evenly.
  int servers = 1;
  bool events = false;  ///< True to fill Simulation::events.
  /// True to simulate as much as runs of a plan that deadlocks or fails the audit. The result then
  /// has no names, sizes, peaks and weight versions.
  bool partly = false;
};

}  // namespace hetu
