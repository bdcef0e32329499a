// Options whose value is a list of KEY=VALUE: stragglers, constants of the groups. The tool, the
// scripts and hetu.averaging read them here.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/groups/options.h"

namespace hetu::cli {

/// What "pipeline=1,factor=2" or "worker=5,factor=1.3,from=100,to=300" tells. Throws
/// InvalidArgument: another key, one that stands twice, a number that cannot be, no factor, neither
/// or both of pipeline and worker.
Slowdown parse_slow(const std::string& text);

/// --slow; each adds one.
Option slow_option(std::vector<Slowdown>& into);

/// The constants of the groups that can be told: name and place.
std::vector<std::pair<const char*, double*>> constants_of(groups::Options& policy);

/// --group-options, as "wait=0.5,late_us=100"; `given` is called after each.
Option constants_option(groups::Options& policy, const std::function<void()>& given);

}  // namespace hetu::cli
