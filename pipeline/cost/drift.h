// Distance between measured times and the times that a plan was made by.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns the share of the workers' time that `planned` puts elsewhere. This is the sum of
/// |measured - planned| over kinds of work and model stages, divided by the sum of measured times.
/// Planned times are first scaled to the same sum, because a machine that is uniformly slower
/// changes no plan. The result, over all work of the plan, is from 0 to 2. Collectives and messages
/// don't count. One stage of four that becomes twice as slow gives 0.3. Throws InvalidArgument as
/// check_costs().
double drift(const Schedule& plan, const Costs& planned, const Costs& measured);

}  // namespace hetu
