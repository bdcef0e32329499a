// The part of trainer.h that finds the memory and the errors of a job's workers before any worker
// exists.
#include <algorithm>

#include "executor/job/cuts.h"
#include "executor/job/make_plan.h"
#include "executor/job/trainer.h"

namespace hetu {

// Plans the first pipeline only, because the others are like it, unless pipelines are cut
// differently.
std::vector<WorkerMemory> Trainer::memories(const Graph& graph, const OptimizerConfig& optimizer,
                                            const TrainerOptions& options) {
  const int width = std::max(1, width_of(options));
  WorkerIndex index{0, std::max(1, linked_of(options)) * width};
  const TrainPlan first = make_plan(graph, optimizer, options, index);
  TrainerOptions cut = first.options;  // the cut that is found once for all workers
  if (!cut.cuts.empty()) cut.first_block.clear();
  std::vector<WorkerMemory> all = {first.memory};
  const int workers = cut.cuts.empty() ? width : index.workers;
  for (++index.worker; index.worker < workers; ++index.worker)
    all.push_back(make_plan(graph, optimizer, cut, index).memory);
  return all;
}

std::int64_t Trainer::check(const Graph& graph, const OptimizerConfig& optimizer,
                            const TrainerOptions& options) {
  std::int64_t most = 0;
  for (const WorkerMemory& one : memories(graph, optimizer, options))
    most = std::max(most, one.peak());
  return most;
}

}  // namespace hetu
