// Plans that may be left at run time: what a worker may do before its turn.
#pragma once
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// A worker's row in the order, of those that a run may come to, that keeps most: under a run
/// policy all that may go before its first recompute does.
std::vector<Instr> fullest_row(const Schedule& plan, int worker);

/// Throws Plan, naming worker and instruction, unless the plan's run policy is defined for it.
void check_run_policy(const Schedule& plan);

}  // namespace hetu
