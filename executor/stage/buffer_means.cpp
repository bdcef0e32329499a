// Means of buffers over pipelines and replicas. Each worker adds its copies in float64 on the
// device. The sums then go through host memory to the other holders.
#include "executor/stage/buffer_means.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

BufferMeans::BufferMeans(const Graph& graph, const StagesOptions& options,
                         std::vector<Stage*> stages, Device& device, comm::Transport& transport)
    : graph_(graph),
      options_(options),
      stages_(std::move(stages)),
      device_(device),
      transport_(transport) {}

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

void BufferMeans::keep() {
  std::int64_t floats = 0;
  for (const Stage* stage : stages_)
    for (const StageBuffer& b : stage->plan().buffers) floats += b.elements;
  if (floats == 0) return;
  if (kept_ == nullptr) {
    kept_ = device_.alloc_for(floats * std::int64_t{sizeof(float)}, "a copy of running statistics");
  }
  copy_kept(/*back=*/false);
}

void BufferMeans::restore_kept() {
  if (kept_ != nullptr) copy_kept(/*back=*/true);
}

void BufferMeans::copy_kept(bool back) {
  auto* kept = reinterpret_cast<float*>(kept_.get());
  std::vector<CopyCall> calls;
  for (const Stage* stage : stages_) {
    for (const StageBuffer& b : stage->plan().buffers) {
      float* const buffer = stage->memory().floats(b.value);
      calls.push_back({back ? buffer : kept, back ? kept : buffer, b.elements});
      kept += b.elements;
    }
  }
  device_.queue().run(
      [calls = std::move(calls), copy_all = device_.kernels().copy_all](AddressMap at) {
        std::vector<CopyCall> there;
        for (const CopyCall& call : calls)
          there.push_back({at(call.to), at(call.from), call.elements});
        copy_all(there);
      });
}

// Returns the groups of workers that share buffers, in model order. Workers that hold several
// stages or segments then take part in the sums in the same order.
std::vector<BufferMeans::Shared> BufferMeans::shared() const {
  std::map<int, Shared> all;
  const std::vector<Segment>& segments = options_.segments;
  for (const Stage* stage : stages_) {
    const int model_stage = stage->plan().stage;
    if (segments.empty()) {
      Shared& s = all[model_stage];
      if (s.copies.empty())
        s = {"stage", model_stage, holders(model_stage), {}, stage->copies() * options_.pipelines};
      s.copies.push_back(stage);
      continue;
    }
    for (int k = 0; k < static_cast<int>(segments.size()); ++k) {
      const std::vector<int>& stages = segments[k].stages;
      if (stages[options_.pipeline] != model_stage) continue;
      Shared s{"segment", k, {}, {stage}, options_.pipelines, k};
      for (int d = 0; d < options_.pipelines; ++d)
        s.holders.push_back(
            d * options_.workers_per_pipeline +
            options_.plan->placements[placement_of(*options_.plan, stages[d], 0)].workers[0]);
      all[k] = std::move(s);
    }
  }
  std::vector<Shared> out;
  for (auto& [number, s] : all)
    if (!buffers_of(s, *s.copies.front()).empty()) out.push_back(std::move(s));
  return out;
}

std::vector<StageBuffer> BufferMeans::buffers_of(const Shared& shared, const Stage& stage) const {
  std::vector<StageBuffer> out = stage.plan().buffers;
  if (shared.segment == kNone) return out;
  std::erase_if(out, [&](const StageBuffer& b) {
    return segment_of_buffer(graph_, options_.segments, b.buffer) != shared.segment;
  });
  return out;
}

void BufferMeans::end_step(int step) {
  if (options_.sums.copies.empty()) return;
  for (const Shared& one : shared()) end_step(one, step);
}

// Returns what this worker's copies have collected: for each copy and each of its micro-batches,
// ascending, the next values of all buffers.
std::vector<float> BufferMeans::collected(const Shared& shared) const {
  std::vector<float> mine;
  for (const Stage* stage : shared.copies) {
    for (int m = 0; m < options_.micro_batches; ++m) {
      if (!stage->runs_here(m)) continue;
      for (const StageBuffer& b : stage->plan().buffers) {
        mine.resize(mine.size() + static_cast<std::size_t>(b.elements));
        DeviceSpan{stage->collected(b, m), b.elements, &device_}.read(
            &mine[mine.size() - b.elements]);
      }
    }
  }
  return mine;
}

// The layout says which micro-batches the contribution of each worker is for.
void BufferMeans::end_step(const Shared& shared, int step) {
  const auto what = [&] {
    return fmt::format("the buffers of stage {}, step {}", shared.number, step);
  };
  const std::vector<float> mine = collected(shared);
  comm::Gathered all;
  if (shared.holders.size() > 1)
    all = comm::gather_bytes(transport_, shared.holders, mine.data(), mine.size() * sizeof(float),
                             {comm::make_tag(kBufferTag, shared.number, 0, 1, step), what});
  const auto* next =
      shared.holders.size() > 1 ? reinterpret_cast<const float*>(all.all.data()) : mine.data();
  std::map<int, const float*> by_micro;
  std::int64_t elements = 0;
  for (const StageBuffer& b : shared.copies.front()->plan().buffers) elements += b.elements;
  for (const int worker : shared.holders) {
    for (const SumCopy& copy : options_.sums.copies) {
      if (copy.worker != worker || copy.model_stage != shared.number) continue;
      std::vector<int> micros = copy.micros;
      std::sort(micros.begin(), micros.end());
      for (const int micro : micros) by_micro[micro] = std::exchange(next, next + elements);
    }
  }
  std::vector<float> mean(static_cast<std::size_t>(elements));
  for (std::size_t i = 0; i < mean.size(); ++i) {
    double sum = 0;
    for (const auto& [micro, values] : by_micro) sum += values[i];
    mean[i] = static_cast<float>(sum / static_cast<double>(by_micro.size()));
  }
  for (const Stage* stage : shared.copies) {
    const float* from = mean.data();
    for (const StageBuffer& b : stage->plan().buffers)
      DeviceSpan{stage->memory().floats(b.value), b.elements, &device_}.write(
          std::exchange(from, from + b.elements));
  }
}

void BufferMeans::average(int step) {
  for (const Shared& one : shared()) average(one, step);
}

void BufferMeans::average(const Shared& shared, int step) {
  std::int64_t elements = 0;
  for (const StageBuffer& b : buffers_of(shared, *shared.copies.front())) elements += b.elements;
  const std::int64_t bytes = elements * static_cast<std::int64_t>(sizeof(double));
  const Device::Memory room = device_.alloc_for(bytes, "the means of running statistics");
  auto* const sums = reinterpret_cast<double*>(room.get());
  Queue& queue = device_.queue();
  const auto each = [&](const auto& visit) {
    for (const Stage* stage : shared.copies) {
      double* sum = sums;
      for (const StageBuffer& b : buffers_of(shared, *stage)) {
        visit(stage->memory().floats(b.value), sum, b.elements);
        sum += b.elements;
      }
    }
  };
  each([&](float* own, double* sum, std::int64_t n) {
    queue.run([=, add = device_.kernels().add_wide](AddressMap at) {
      add(at(sum), at(static_cast<const float*>(own)), n);
    });
  });
  if (shared.holders.size() > 1) {
    const auto what = [&] {
      return fmt::format("the buffers of {} {}, step {}", shared.kind, shared.number, step);
    };
    std::vector<double> values(static_cast<std::size_t>(elements));
    queue.download(values.data(), sums, bytes);
    queue.record().wait();
    comm::sum_f64(transport_, shared.holders, values.data(), values.size(),
                  {comm::make_tag(kBufferTag, shared.number, 0, 0, step), what});
    queue.upload(sums, values.data(), bytes);
    queue.record().wait();
  }
  const double count = shared.of_all;
  each([&](float* own, double* sum, std::int64_t n) {
    queue.run([=, mean = device_.kernels().mean](AddressMap at) {
      mean(at(own), at(static_cast<const double*>(sum)), count, n);
    });
  });
}

// Returns the workers of all pipelines that hold the model stage, each once, ascending.
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
