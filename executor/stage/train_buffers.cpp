// Buffers of a worker's stages (running statistics): averaged over pipelines where they are read or
// saved.
#include <algorithm>
#include <map>

#include "executor/comm/tag_kinds.h"
#include "executor/stage/train_stages.h"
#include "graph/base/error.h"

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
  for (const auto& [model_stage, list] : copies) average_buffers(model_stage, list);
}

void TrainStages::average_buffers(int model_stage, const std::vector<Stage*>& copies) {
  std::int64_t elements = 0;
  for (const StageBuffer& b : copies.front()->plan().buffers) elements += b.elements;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(double));
  const Device::Memory room = device_.alloc(bytes);
  require(room != nullptr, "device {} has no {} bytes for the mean of buffers", device_.name(),
          bytes);
  auto* const sums = reinterpret_cast<double*>(room.get());
  Queue& queue = device_.queue();
  const auto each = [&](const auto& visit) {
    for (const Stage* stage : copies) {
      double* sum = sums;
      for (const StageBuffer& b : stage->plan().buffers) {
        visit(stage->memory().floats(b.value), sum, b.elements);
        sum += b.elements;
      }
    }
  };
  each([&](float* own, double* sum, std::int64_t n) {
    queue.run([=, add = device_.kernels().add_wide](Reach at) {
      add(at(sum), at(static_cast<const float*>(own)), n);
    });
  });
  if (const comm::Group group = holders(model_stage); group.size() > 1) {
    const auto what = [&] {
      return fmt::format("the buffers of stage {}, step {}", model_stage, context_.step);
    };
    std::vector<double> values(static_cast<std::size_t>(elements));
    queue.download(values.data(), sums, bytes);
    queue.record().wait();
    comm::sum_f64(transport_, group, values.data(), values.size(),
                  {comm::make_tag(kBufferTag, model_stage, 0, 0, context_.step), what});
    queue.upload(sums, values.data(), bytes);
    queue.record().wait();
  }
  const double count = copies.front()->copies() * options_.pipelines;
  each([&](float* own, double* sum, std::int64_t n) {
    queue.run([=, mean = device_.kernels().mean](Reach at) {
      mean(at(own), at(static_cast<const double*>(sum)), count, n);
    });
  });
}

}  // namespace hetu
