// What a prediction is told beside plan and costs. Part of simulate.h.
#pragma once
#include "pipeline/cost/stragglers.h"
#include "pipeline/verify/progress.h"

namespace hetu {

struct SimulateOptions : Stragglers {
  int send_slots = kUnboundedSlots;  ///< matters for lowered plans only
  int servers = 1;                   ///< that share each stage's weights evenly, where it has any
  bool events = false;               ///< fill Simulation::events
  bool partly = false;  ///< of a plan that stops or fails the audit, what runs; no peaks then
};

}  // namespace hetu
