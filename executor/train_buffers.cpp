// Buffers of a training worker: replaced by forwards, averaged over pipelines where they are read
// or saved.
#include <algorithm>
#include <cstring>

#include "executor/train_runner.h"

namespace hetu {

// Forwards of a stage run in ascending order of micro-batch, so this order is that of one process.
void TrainRunner::replace_buffers(Stage& stage, int micro) {
  for (const StageBuffer& b : stage.plan->buffers) {
    std::memcpy(stage.memory->floats(b.value), stage.memory->at(b.next, micro),
                static_cast<std::size_t>(b.elements) * sizeof(float));
  }
}

std::vector<float> TrainRunner::buffers() const {
  std::vector<float> out;
  for (const Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (const StageBuffer& b : stage.plan->buffers) {
      const float* data = stage.memory->floats(b.value);
      out.insert(out.end(), data, data + b.elements);
    }
  }
  return out;
}

void TrainRunner::set_buffers(const std::vector<float>& values) {
  const float* from = values.data();
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (const StageBuffer& b : stage.plan->buffers) {
      std::copy_n(from, b.elements, stage.memory->floats(b.value));
      from += b.elements;
    }
  }
}

void TrainRunner::average_buffers() {
  std::vector<float> means;
  for (Stage& stage : stages_) {
    if (!stage.plan || stage.plan->buffers.empty()) continue;
    std::vector<double> sums;
    for (const StageBuffer& b : stage.plan->buffers) {
      const float* data = stage.memory->floats(b.value);
      sums.insert(sums.end(), data, data + b.elements);
    }
    const comm::Group group = holders({stage.plan->stage});
    const auto what = [&] {
      return fmt::format("the buffers of stage {}, step {}", stage.plan->stage, step_);
    };
    if (group.size() > 1) {
      comm::sum_f64(transport_, group, sums.data(), sums.size(),
                    {comm::make_tag(kBufferTag, stage.plan->stage, 0, 0, step_), what});
    }
    for (const double sum : sums) {
      means.push_back(static_cast<float>(sum / static_cast<double>(group.size())));
    }
  }
  set_buffers(means);
}

}  // namespace hetu
