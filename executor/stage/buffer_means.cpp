#include "executor/stage/buffer_means.h"

#include <algorithm>
#include <map>
#include <utility>

#include "executor/comm/tag_kinds.h"
#include "graph/base/error.h"

namespace hetu {

BufferMeans::BufferMeans(const StagesOptions& options, std::vector<Stage*> stages, Device& device,
                         comm::Transport& transport)
    : options_(options), stages_(std::move(stages)), device_(device), transport_(transport) {}

std::vector<float> BufferMeans::values() const {
  std::vector<float> out;
  for (const Stage* stage : stages_) {
    for (const StageBuffer& b : stage->plan().buffers) {
      const std::size_t at = out.size();
      out.resize(at + static_cast<std::size_t>(b.elements));
      DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.read(out.data() + at);
    }
  }
  return out;
}

void BufferMeans::set(const std::vector<float>& values) {
  const float* from = values.data();
  for (const Stage* stage : stages_) {
    for (const StageBuffer& b : stage->plan().buffers) {
      DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.write(from);
      from += b.elements;
    }
  }
}

// By model stage, so that workers that hold several stages meet in one order.
void BufferMeans::average(int step) {
  std::map<int, std::vector<Stage*>> copies;
  for (Stage* stage : stages_)
    if (!stage->plan().buffers.empty()) copies[stage->plan().stage].push_back(stage);
  for (const auto& [model_stage, list] : copies) average(model_stage, list, step);
}

void BufferMeans::average(int model_stage, const std::vector<Stage*>& copies, int step) {
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
      return fmt::format("the buffers of stage {}, step {}", model_stage, step);
    };
    std::vector<double> values(static_cast<std::size_t>(elements));
    queue.download(values.data(), sums, bytes);
    queue.record().wait();
    comm::sum_f64(transport_, group, values.data(), values.size(),
                  {comm::make_tag(kBufferTag, model_stage, 0, 0, step), what});
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

comm::Group BufferMeans::holders(int model_stage) const {
  comm::Group group;
  for (int d = 0; d < options_.pipelines; ++d) {
    for (const Placement& p : options_.plan->placements) {
      if (p.model_stage == model_stage)
        group.push_back(d * options_.workers_per_pipeline + p.workers[0]);
    }
  }
  std::sort(group.begin(), group.end());
  group.erase(std::unique(group.begin(), group.end()), group.end());
  return group;
}

}  // namespace hetu
