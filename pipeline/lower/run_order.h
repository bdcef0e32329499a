// The order in which a run with given times executes a plan that has a run policy.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns the plan with its rows in the order in which a run under its run policy executes them,
/// with these times and stragglers. A plan with RunPolicy::AsPlanned is returned unchanged. The
/// input rows are those of the plan without the policy. If the plan is lowered, its computations
/// are ordered and the result is lowered with the same options. Throws Plan if the plan can't run,
/// or if the policy is not defined for it (see RunPolicy).
Schedule run_order(const Schedule& plan, const Costs& costs, const Stragglers& stragglers = {});

}  // namespace hetu
