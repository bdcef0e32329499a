// Where the micro-batches of a step are computed, as far as sums of gradients depend on it.
#pragma once
#include <vector>

#include "executor/compile/sum_tree.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A copy of a stage, and the part of each gradient sum that it computes. Micro-batches are
/// numbered over all pipelines, in the order of their samples.
struct SumCopy {
  int worker = 0;
  int placement = 0;
  int model_stage = 0;
  std::vector<int> micros;     ///< in the order of their gradients
  std::vector<SumPart> parts;  ///< largest_parts(micros)
};

/// All copies of all stages of a job.
struct SumLayout {
  int total = 1;  ///< micro-batches of a step, over all pipelines
  std::vector<SumCopy> copies;

  /// Returns the number of copies of a model stage.
  int copies_of(int model_stage) const;
  /// Returns the copy that a worker holds under this placement id.
  const SumCopy& at(int worker, int placement) const;
};

/// Returns the layout of a plan of one step. Worker w of pipeline d is worker
/// d * plan.workers.size() + w of the job. Checks that each stage's copies together compute every
/// micro-batch once. Throws InvalidArgument if the gradients of half
/// micro-batches are summed, or if a stage computes I in another order than W.
SumLayout sum_layout(const Schedule& plan, int pipelines);
/// As above, where each pipeline has a plan of its own: the same method, with its own number of
/// micro-batches.
SumLayout sum_layout(const std::vector<const Schedule*>& plans);

}  // namespace hetu
