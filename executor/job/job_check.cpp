#include "executor/job/job_check.h"

#include <algorithm>

#include "executor/job/cuts.h"
#include "executor/job/make_plan.h"

namespace hetu {

// Plans the first pipeline only, because the others are like it, unless pipelines are cut
// differently.
std::vector<WorkerMemory> job_memories(const Graph& graph, const OptimizerConfig& optimizer,
                                       const JobOptions& options) {
  const int width = std::max(1, width_of(options));
  WorkerIndex index{0, std::max(1, linked_of(options)) * width};
  const JobPlan first = make_plan(graph, optimizer, options, index);
  JobOptions cut = first.options;  // the cut that is found once for all workers
  if (!cut.cuts.empty()) cut.first_block.clear();
  std::vector<WorkerMemory> all = {first.memory};
  const int workers = cut.cuts.empty() ? width : index.workers;
  for (++index.worker; index.worker < workers; ++index.worker)
    all.push_back(make_plan(graph, optimizer, cut, index).memory);
  return all;
}

std::int64_t check_job(const Graph& graph, const OptimizerConfig& optimizer,
                       const JobOptions& options) {
  std::int64_t most = 0;
  for (const WorkerMemory& one : job_memories(graph, optimizer, options))
    most = std::max(most, one.peak());
  return most;
}

}  // namespace hetu
