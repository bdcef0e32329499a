// The order in which a run with given times does everything, of a plan that may be left at run
// time.
#pragma once
#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The plan with its rows in the order in which a run under its run policy does them, with these
/// times and stragglers; the plan itself where everything is as planned. The rows that go in are
/// those without the policy; of a lowered plan the computes are ordered, and lowered alike. Throws
/// Plan if it cannot run, or if the policy is not defined for it (see RunPolicy).
Schedule run_order(const Schedule& plan, const Costs& costs, const Stragglers& stragglers = {});

}  // namespace hetu
