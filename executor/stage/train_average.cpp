// Pipelines that average weights instead of summing gradients: what a training worker does at a
// PARTIAL_REDUCE, and where all pipelines become one again.
#include "executor/stage/train_runner.h"
#include "graph/base/error.h"

namespace hetu {

void TrainRunner::begin_averaged_run(std::int64_t steps) {
  HETU_ASSERT(options_.averager);
  run_updates_ = steps;
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    options_.averager->begin_run(steps, stage.memory->newest_weights(),
                                 stage.memory->weight_elements());
  }
}

void TrainRunner::begin_average(int placement, int /*step*/) {
  if (options_.averager->overlaps())
    options_.averager->begin();
  else
    options_.averager->average_now(at(placement).memory->newest_weights());
}

std::int64_t TrainRunner::end_average(int /*placement*/) { return options_.averager->end(); }

void TrainRunner::end_averaged_run() {
  options_.averager->end_run();
  std::vector<Averager::Span> spans;
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    const StageMemory& memory = *stage.memory;
    spans.push_back({memory.newest_weights(), memory.weight_elements()});
    for (const StageParameter& p : stage.plan->parameters) {
      for (const Loc& state : p.state) spans.push_back({memory.floats(state), p.elements});
    }
    if (!options_.averager->may_lose()) continue;  // else see average_buffers
    for (const StageBuffer& b : stage.plan->buffers)
      spans.push_back({memory.floats(b.value), b.elements});
  }
  options_.averager->consensus(spans);
  average_buffers();
}

}  // namespace hetu
