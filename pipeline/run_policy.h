// Plans that may be left at run time: what a worker may do before its turn, and in which order a
// run with given times does everything.
#pragma once
#include <vector>

#include "pipeline/cost.h"
#include "pipeline/schedule.h"
#include "pipeline/simulate.h"

namespace hetu {

/// The plan with its rows in the order in which a run under its run policy does them, with these
/// times and disturbances; the plan itself where everything is as planned. The rows that go in are
/// those without the policy; of a lowered plan the computes are ordered, and lowered alike. Throws
/// Plan if it cannot run, or if the policy is not defined for it (see RunPolicy).
Schedule run_order(const Schedule& plan, const Costs& costs, const SimulateOptions& options = {});

/// A worker's row in the order, of those that a run may come to, that keeps most: under a run
/// policy all that may go before its first recompute does.
std::vector<Instr> fullest_row(const Schedule& plan, int worker);

/// Throws Plan, naming worker and instruction, unless the plan's run policy is defined for it.
void check_run_policy(const Schedule& plan);

}  // namespace hetu
