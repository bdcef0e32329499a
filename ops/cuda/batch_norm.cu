// Batch normalisation, its fused variants, and the counter beside it (count_up). Three passes: sums
// of every channel in pieces, then statistics and coefficients per channel, then every element.
// Sums are float64 and give the same bits on every GPU.
#include <cmath>

#include "ops/cuda/channels.h"

namespace hetu::cuda {
namespace {

template <class T>
struct SumAndSquares {
  using R = Real<T>;
  static constexpr int kAtOnce = sizeof(T) == 2 ? 8 : 4, kBlocks = 3;
  const T* x;
  template <int V>
  struct Known {};
  template <int V>
  using Lanes = Raw<T, V>;
  template <int V>
  HETU_HD Known<V> known(std::int64_t) const {
    return {};
  }
  template <int V>
  HETU_HD void load(std::int64_t at, Raw<T, V>& lanes) const {
    load_raw(x + at, lanes);
  }
  template <int V>
  HETU_HD void add(const Known<V>&, const Raw<T, V>& lanes, R (&sums)[2][V]) const {
    float of[V];
    widen(lanes, of);
    for (int v = 0; v < V; ++v) {
      sums[0][v] += R(of[v]);
      sums[1][v] += R(of[v]) * R(of[v]);
    }
  }
};

/// A body that computes the statistics of a channel, from the sums or from the running buffers, and
/// the coefficients of the third pass. Coefficients use unrounded statistics, because rounding
/// errors would build up over many training steps.
template <class R>
struct StatisticsOf {
  const float *gamma, *beta, *mean, *variance;
  float *used_mean, *used_variance, *next_mean, *next_variance;
  R* coefficients;
  std::int64_t channels;
  double count, momentum, epsilon;
  bool training;
  HETU_HD void operator()(std::int64_t c, const double* sums) const {
    double now = mean[c], spread = variance[c];
    const double old_mean = now, old_variance = spread;
    if (training) {
      now = sums[0] / count;
      spread = sums[1] / count - now * now;
      if (spread < 0) spread = 0;
    }
    used_mean[c] = static_cast<float>(now);
    used_variance[c] = static_cast<float>(spread);
    next_mean[c] = static_cast<float>(training ? old_mean + momentum * (now - old_mean) : old_mean);
    const double whole = spread * (count / (count - 1));
    next_variance[c] = static_cast<float>(
        training ? old_variance + momentum * (whole - old_variance) : old_variance);
    coefficients[c] = R(now);
    coefficients[channels + c] = R(scale_of(gamma[c], spread, epsilon));
    coefficients[2 * channels + c] = R(beta[c]);
  }
  HETU_HD void operator()(std::int64_t c) const { (*this)(c, nullptr); }
};

template <class T>
struct NormaliseOf {
  using R = Real<T>;
  static constexpr int kAtOnce = 2;
  const T *x, *skip;
  T* y;
  const R* coefficients;
  std::int64_t channels;
  bool relu;
  template <int V>
  struct Known {
    R mean[V], scale[V], beta[V];
  };
  template <int V>
  struct Lanes {
    Raw<T, V> x, skip;
  };
  template <int V>
  HETU_HD Known<V> known(std::int64_t channel) const {
    Known<V> k;
    of_channels<V>(coefficients, channel, k.mean);
    of_channels<V>(coefficients + channels, channel, k.scale);
    of_channels<V>(coefficients + 2 * channels, channel, k.beta);
    return k;
  }
  template <int V>
  HETU_HD void load(std::int64_t at, Lanes<V>& lanes) const {
    load_raw(x + at, lanes.x);
    if (skip != nullptr) load_raw(skip + at, lanes.skip);
  }
  template <int V>
  HETU_HD void make(std::int64_t at, const Known<V>& k, const Lanes<V>& lanes) const {
    float value[V], added[V] = {};
    widen(lanes.x, value);
    if (skip != nullptr) widen(lanes.skip, added);
    for (int v = 0; v < V; ++v) {
      value[v] = normalised(R(value[v]), k.mean[v], k.scale[v], k.beta[v]) + added[v];
      if (relu) value[v] = fn::Relu()(value[v]);
    }
    Raw<T, V> made;
    narrow(value, made);
    store_raw(y + at, made);
  }
};

template <class T>
struct BatchNorm {
  std::string name;
  Channels channels;
  double momentum, epsilon;
  bool relu, skip;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        channels(d),
        momentum(d.attrs->real("momentum")),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op != "batch_norm"),
        skip(d.inputs.size() > 5) {}
  std::int64_t scratch_bytes() const { return scratch_of(channels); }

  void operator()(const KernelCall& c) const {
    if (c.run.training) cpu::check_batch(name, channels.per_channel());
    const T *const x = c.in<T>(0), *const added = skip ? c.in<T>(5) : nullptr;
    T* const y = c.out<T>(0);
    auto* const parts = static_cast<double*>(c.scratch);
    auto* const coefficients = reinterpret_cast<Real<T>*>(parts + parts_of(channels));
    const StatisticsOf<Real<T>> statistics = {c.in<float>(1),
                                              c.in<float>(2),
                                              c.in<float>(3),
                                              c.in<float>(4),
                                              c.out<float>(1),
                                              c.out<float>(2),
                                              c.out<float>(3),
                                              c.out<float>(4),
                                              coefficients,
                                              channels.count,
                                              static_cast<double>(channels.per_channel()),
                                              momentum,
                                              epsilon,
                                              c.run.training};
    in_packs(channels, {x, added, y, coefficients}, [&]<int V>(std::integral_constant<int, V>) {
      if (c.run.training)
        sum_channels<V>(channels, SumAndSquares<T>{x}, statistics, parts);
      else
        for_each(channels.count, statistics);
      sweep_channels<V>(channels, NormaliseOf<T>{x, added, y, coefficients, channels.count, relu});
    });
  }
};

struct CountUpOf {
  const float* x;
  float* y;
  HETU_HD void operator()(std::int64_t) const { *y = *x + 1; }
};

struct CountUp {
  explicit CountUp(const KernelDesc&) {}
  void operator()(const KernelCall& c) const {
    for_each(1, CountUpOf{c.in<float>(0), c.out<float>(0)});
  }
};

}  // namespace

const KernelTable& batch_norm_rows() {
  static const KernelTable kRows = {
      image_row("batch_norm", as_they_lie<BatchNorm>),
      image_row("batch_norm_relu", as_they_lie<BatchNorm>),
      image_row("batch_norm_add_relu", as_they_lie<BatchNorm>),
      row("count_up", floats<CountUp>),
  };
  return kRows;
}

}  // namespace hetu::cuda
