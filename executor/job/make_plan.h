// Makes the verified and compiled plan of one worker from a graph, an optimizer and options.
#pragma once
#include <vector>

#include "executor/job/job_plan.h"

namespace hetu {

/// Plans, verifies and compiles for one worker. The result depends on the arguments only.
/// Exception: the size of kernel scratch, if options.threads leaves the number of threads to
/// OpenMP. Throws InvalidArgument (sizes, stragglers or averages that do not fit the job, a plan
/// over the memory limit), Unsupported and Plan.
JobPlan make_plan(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
                  const WorkerIndex& index);

/// Returns the first block of each of `stages` stages such that the most expensive stage is as
/// cheap as possible, by FLOPs of forward and backward. Throws InvalidArgument if the model has
/// fewer blocks than `stages`, naming both numbers.
std::vector<int> balance_stages(const Graph& graph, int stages);

}  // namespace hetu
