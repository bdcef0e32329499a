// Checks and bounds for plans with a run policy, under which a worker may run instructions before
// their turn.
#pragma once
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns a worker's row in the order that keeps the most activations, of all orders that a run
/// may take. Under a run policy all forwards then stand before the row's first recompute.
std::vector<Instr> fullest_row(const Schedule& plan, int worker);

/// Checks that the plan's run policy is defined for it. Throws Plan with the worker and the
/// instruction if it is not.
void check_run_policy(const Schedule& plan);

}  // namespace hetu
