// Reductions over axes, and broadcasting along them, one output at a time.
#include "ops/cpu/broadcast_walk.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/reduce_shape.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

template <class T, class F>
struct Reduce {
  ReduceShape shape;
  double correction;
  explicit Reduce(const KernelDesc& d) : shape(d), correction(correction_of(d)) {}
  void operator()(const KernelCall& c) const {
    T* y = c.out<T>(0);
    const std::int64_t columns = shape.run_reduced() ? 1 : shape.run();
    for (std::int64_t strip = 0; strip < shape.strips(); ++strip)
      for (std::int64_t j = 0; j < columns; ++j)
        *y++ = one(c.in<T>(0) + shape.strip_begin(strip) + j);
  }
  T one(const T* x) const {
    const std::int64_t run = shape.run_reduced() ? shape.run() : 1;
    F f;
    for (int pass = 0; pass < F::kPasses; ++pass) {
      if (pass > 0) f.next(shape.count());
      for (std::int64_t step = 0; step < shape.steps(); ++step)
        for (std::int64_t k = 0; k < run; ++k) f.add(double(x[shape.step_begin(step) + k]));
    }
    return static_cast<T>(f.result(shape.count(), correction));
  }
};

template <class F>
struct Of {
  template <class T>
  using Over = Reduce<T, F>;
};

template <class T>
struct BroadcastTo {
  BroadcastWalk<1> walk;
  explicit BroadcastTo(const KernelDesc& d) : walk(d) {}
  void operator()(const KernelCall& c) const {
    T* y = c.out<T>(0);
    for (std::int64_t r = 0; r < walk.rows(); ++r)
      for (std::int64_t i = 0; i < walk.row_size(); ++i)
        *y++ = c.in<T>(0)[walk.begin(r)[0] + i * walk.step(0)];
  }
};

}  // namespace

const KernelTable& reference_reduce_rows() {
  static const KernelTable kRows = {
      {"reduce_sum", "reference", nullptr, reference<Of<SumOf>::Over>},
      {"reduce_mean", "reference", nullptr, reference<Of<MeanOf>::Over>},
      {"reduce_max", "reference", nullptr, reference<Of<MaxOf>::Over>},
      {"reduce_min", "reference", nullptr, reference<Of<MinOf>::Over>},
      {"reduce_variance", "reference", nullptr, reference<Of<VarianceOf>::Over>},
      {"reduce_logsumexp", "reference", nullptr, reference<Of<LogSumExpOf>::Over>},
      {"broadcast_to", "reference", nullptr, reference<BroadcastTo>},
  };
  return kRows;
}

}  // namespace hetu::cpu
