// The memory and the errors of a job's workers, found before any worker exists.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/job/job_plan.h"

namespace hetu {

/// Throws what any worker of such a job would throw during construction, as far as that needs
/// neither links nor a coordinator. This includes plans that fail verification or do not fit the
/// workers and the model, stragglers and averages that do not fit the job, and plans over the
/// memory limit. Returns the bytes that the worker with the largest peak needs.
std::int64_t check_job(const Graph& graph, const OptimizerConfig& optimizer,
                       const JobOptions& options);

/// As check_job(), but returns the memory needs of the job's workers: those of one pipeline, or of
/// all pipelines if they are not cut alike.
std::vector<WorkerMemory> job_memories(const Graph& graph, const OptimizerConfig& optimizer,
                                       const JobOptions& options);

}  // namespace hetu
