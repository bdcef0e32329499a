// Checks the rules of a log of groups from the log alone, without code of the policy.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::groups {

/// Returns the decisions of one stage, in order.
std::vector<Decision> of_stage(const std::vector<Decision>& log, int stage);

/// Returns the least W for which every sliding window of W updates of the stage joins its
/// pipelines. A window must join all pipelines that have updates in it or after it, except for a
/// pipeline that dies. Groups that a window cuts at its ends do not count.
std::int64_t worst_window(const std::vector<Decision>& stage_log, int pipelines, int dead = -1);

/// Returns the first inconsistency of a log, or "". It checks that serial numbers have no gaps, and
/// that members are ascending and belong to this run. Updates of each pipeline must follow each
/// other from `done` + 1. After the stop is announced, each pipeline has one stop, and none passes
/// it.
std::string disorder(const std::vector<Decision>& log, const Options& options, std::int64_t done);

/// Averages one number per pipeline and stage as the log states, with a random change before each
/// update. Returns the largest difference between the means before and after a group.
double worst_error_of_means(const std::vector<Decision>& log, const Options& options,
                            std::uint64_t seed);

}  // namespace hetu::groups
