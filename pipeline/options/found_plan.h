// Plans that `hetu plan -o FILE.json` has found, as the FILE of verify, simulate, rehearse and
// schedule.
#pragma once
#include "pipeline/options/plan_options.h"

namespace hetu {

/// If `o.source` is the JSON file of `hetu plan`, sets the options to those of its plan: method,
/// sizes, pipelines and, unless --costs is given, the costs of its stages on its workers. With
/// --costs, the blocks of that file are cut as the plan says. Other sources are left unchanged.
/// Throws InvalidArgument for options that the plan sets, and Config for a file without a plan.
void take_found_plan(PlanOptions& o);

}  // namespace hetu
