// Reductions over axes. Threads take different outputs and never divide a sum, so its order is
// independent of their number. If outputs are adjacent in memory, a strip of them is reduced
// together.
#include <algorithm>
#include <type_traits>

#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/reduce_shape.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kStrip = 64;

template <class F>
struct Reduce {
  ReduceShape shape;
  double correction;
  explicit Reduce(const KernelDesc& d) : shape(d), correction(correction_of(d)) {}

  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    float* y = c.out<float>(0);
    const std::int64_t columns = shape.run_reduced() ? 1 : shape.run();
    const std::int64_t blocks = (columns + kStrip - 1) / kStrip;
#pragma omp parallel for schedule(static) if (shape.outputs() * shape.count() > kParallelElements)
    for (std::int64_t i = 0; i < shape.strips() * blocks; ++i) {
      const std::int64_t strip = i / blocks, begin = i % blocks * kStrip;
      const float* from = x + shape.strip_begin(strip) + begin;
      float* to = y + strip * columns + begin;
      if (shape.run_reduced())
        *to = along(from);
      else
        down(from, std::min(kStrip, columns - begin), to);
    }
  }

 private:
  float finished(const F& f) const {
    return static_cast<float>(f.result(shape.count(), correction));
  }

  // Computes one output, whose elements are runs of adjacent numbers.
  float along(const float* x) const {
    F f;
    for (int pass = 0; pass < F::kPasses; ++pass) {
      if (pass > 0) f.next(shape.count());
      for (std::int64_t step = 0; step < shape.steps(); ++step)
        add_run(f, x + shape.step_begin(step));
    }
    return finished(f);
  }

  void add_run(F& f, const float* x) const {
    const std::int64_t n = shape.run();
    if constexpr (std::is_base_of_v<SumOf, F>) {
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t k = 0; k < n; ++k) sum += double(x[k]);
      f.sum += sum;
    } else {
      for (std::int64_t k = 0; k < n; ++k) f.add(double(x[k]));
    }
  }

  // Computes a strip of adjacent outputs.
  void down(const float* x, std::int64_t width, float* y) const {
    F f[kStrip];
    for (int pass = 0; pass < F::kPasses; ++pass) {
      for (std::int64_t j = 0; pass > 0 && j < width; ++j) f[j].next(shape.count());
      for (std::int64_t step = 0; step < shape.steps(); ++step) {
        const float* row = x + shape.step_begin(step);
        for (std::int64_t j = 0; j < width; ++j) f[j].add(double(row[j]));
      }
    }
    for (std::int64_t j = 0; j < width; ++j) y[j] = finished(f[j]);
  }
};

struct BroadcastTo {
  BroadcastWalk<1> walk;
  explicit BroadcastTo(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    const float* x = c.in<float>(0);
    float* y = c.out<float>(0);
    for_row_chunks(walk.rows(), walk.row_size(),
                   [=, this](std::int64_t row, std::int64_t begin, std::int64_t end) {
                     const float* from = x + walk.begin(row)[0];
                     float* to = y + row * walk.row_size();
                     if (walk.step(0) == 0)
                       std::fill(to + begin, to + end, *from);
                     else
                       std::copy(from + begin, from + end, to + begin);
                   });
  }
};

}  // namespace

const KernelTable& vector_reduce_axes_rows() {
  static const KernelTable kRows = {
      {"reduce_sum", "vector", is_float32, vector_kernel<Reduce<SumOf>>},
      {"reduce_mean", "vector", is_float32, vector_kernel<Reduce<MeanOf>>},
      {"reduce_max", "vector", is_float32, vector_kernel<Reduce<MaxOf>>},
      {"reduce_min", "vector", is_float32, vector_kernel<Reduce<MinOf>>},
      {"reduce_variance", "vector", is_float32, vector_kernel<Reduce<VarianceOf>>},
      {"reduce_logsumexp", "vector", is_float32, vector_kernel<Reduce<LogSumExpOf>>},
      {"broadcast_to", "vector", is_float32, vector_kernel<BroadcastTo>},
  };
  return kRows;
}

}  // namespace hetu::cpu
