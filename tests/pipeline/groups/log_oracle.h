// What a log of groups must obey, checked from the log alone: it shares no code with the policy.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::groups {

/// The decisions of one stage, in order.
std::vector<Decision> of_stage(const std::vector<Decision>& log, int stage);

/// The least W such that every sliding window of W updates of the stage joins all pipelines that
/// have updates in it or after it, but for one that dies. Groups that a window cuts at its ends do
/// not count.
std::int64_t worst_window(const std::vector<Decision>& stage_log, int pipelines, int dead = -1);

/// What is wrong with a log in itself, or "": serial numbers without gaps, members ascending and
/// of this run, updates of each pipeline one after the other from `done` + 1, one stop per pipeline
/// once it is told, none passed.
std::string disorder(const std::vector<Decision>& log, const Options& options, std::int64_t done);

/// Averages one number per pipeline and stage as the log says, with a random change before each
/// update; the largest difference of the mean before and after a group, and of two members after.
double worst_error_of_means(const std::vector<Decision>& log, const Options& options,
                            std::uint64_t seed);

}  // namespace hetu::groups
