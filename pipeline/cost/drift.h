// How far measured times are from those that a plan was made by.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The share of the workers' time that lies elsewhere than `planned` has it: over kinds of work and
/// model stages, the sum of |measured - planned| / the sum of measured, of all that the plan does,
/// with planned times scaled to the same sum, as a machine that is slower throughout changes no
/// plan. 0 to 2; collectives and messages do not count. One stage of four that becomes twice as
/// slow makes 0.3. Throws InvalidArgument as check_costs.
double drift(const Schedule& plan, const Costs& planned, const Costs& measured);

}  // namespace hetu
