// Buffers of a worker's stages (running statistics): averaged over pipelines where they are read or
// saved.
#include <algorithm>
#include <map>

#include "executor/comm/tag_kinds.h"
#include "executor/stage/train_stages.h"

namespace hetu {

std::vector<float> TrainStages::buffers() const {
  std::vector<float> out;
  for (const Stage* stage : here()) {
    for (const StageBuffer& b : stage->plan().buffers) {
      const std::size_t at = out.size();
      out.resize(at + static_cast<std::size_t>(b.elements));
      DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.read(out.data() + at);
    }
  }
  return out;
}

void TrainStages::set_buffers(const std::vector<float>& values) {
  const float* from = values.data();
  for (const Stage* stage : here()) {
    for (const StageBuffer& b : stage->plan().buffers) {
      DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.write(from);
      from += b.elements;
    }
  }
}

// By model stage, so that workers that hold several stages meet in one order.
void TrainStages::average_buffers() {
  std::map<int, std::vector<Stage*>> copies;
  for (Stage* stage : here())
    if (!stage->plan().buffers.empty()) copies[stage->plan().stage].push_back(stage);
  for (const auto& [model_stage, list] : copies) {
    const comm::Group group = holders(model_stage);
    const int count = list.front()->copies() * options_.pipelines;
    std::vector<double> sums;
    for (const Stage* stage : list) {
      std::size_t at = 0;
      for (const StageBuffer& b : stage->plan().buffers) {
        sums.resize(std::max(sums.size(), at + static_cast<std::size_t>(b.elements)), 0);
        const DeviceSpan span{stage->memory().floats(b.value), b.elements, &device_};
        for (const float value : span.values()) sums[at++] += value;
      }
    }
    const auto what = [&, s = model_stage] {
      return fmt::format("the buffers of stage {}, step {}", s, context_.step);
    };
    if (group.size() > 1) {
      comm::sum_f64(transport_, group, sums.data(), sums.size(),
                    {comm::make_tag(kBufferTag, model_stage, 0, 0, context_.step), what});
    }
    std::vector<float> means;
    for (const double sum : sums) means.push_back(static_cast<float>(sum / count));
    for (const Stage* stage : list) {
      const float* from = means.data();
      for (const StageBuffer& b : stage->plan().buffers) {
        DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.write(from);
        from += b.elements;
      }
    }
  }
}

}  // namespace hetu
