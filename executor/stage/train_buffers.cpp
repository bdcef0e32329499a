// Buffers of a training worker: replaced by forwards, averaged over pipelines where they are read
// or saved.
#include <algorithm>
#include <cstring>
#include <map>

#include "executor/stage/train_runner.h"

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

// By model stage, so that workers that hold several stages meet in one order.
void TrainRunner::average_buffers() {
  std::map<int, std::vector<Stage*>> copies;
  for (Stage& stage : stages_)
    if (stage.plan && !stage.plan->buffers.empty()) copies[stage.plan->stage].push_back(&stage);
  for (auto& [model_stage, here] : copies) {
    std::vector<double> sums;
    for (const Stage* stage : here) {
      std::size_t at = 0;
      for (const StageBuffer& b : stage->plan->buffers) {
        const float* data = stage->memory->floats(b.value);
        sums.resize(std::max(sums.size(), at + static_cast<std::size_t>(b.elements)), 0);
        for (std::int64_t i = 0; i < b.elements; ++i) sums[at++] += data[i];
      }
    }
    const comm::Group group = holders(model_stage);
    const auto what = [&, s = model_stage] {
      return fmt::format("the buffers of stage {}, step {}", s, step_);
    };
    if (group.size() > 1) {
      comm::sum_f64(transport_, group, sums.data(), sums.size(),
                    {comm::make_tag(kBufferTag, model_stage, 0, 0, step_), what});
    }
    for (const Stage* stage : here) {
      std::size_t at = 0;
      for (const StageBuffer& b : stage->plan->buffers) {
        float* data = stage->memory->floats(b.value);
        for (std::int64_t i = 0; i < b.elements; ++i)
          data[i] = static_cast<float>(sums[at++] / stage->copies);
      }
    }
  }
}

}  // namespace hetu
