// Gradients of batch normalisation and of its fused variants. Three passes: sums of every channel
// in pieces, then coefficients per channel, then every element.
#include <cmath>

#include "ops/cuda/channels.h"

namespace hetu::cuda {
namespace {

/// The operation after the norm: none, ReLU, or ReLU of the sum with a skip connection.
enum class Behind { Nothing, Relu, SkipAndRelu };

/// A body that computes the gradient of the norm's result. A ReLU passes it where its result is
/// positive. With a skip connection this gradient is also dskip, which is written during the
/// summing pass.
template <class T, Behind kBehind>
struct SlopeOf {
  using R = Real<T>;
  static constexpr int kAtOnce = kBehind == Behind::SkipAndRelu || sizeof(T) > 2 ? 2 : 4;
  static constexpr int kBlocks = 2;
  const T *x, *dy;
  const float *mean, *beta;  // beta: used with Relu
  const R* scale;            // per channel
  // Used with SkipAndRelu: the ReLU's result, a second gradient, and the output.
  const T *y = nullptr, *more = nullptr;
  T* dskip = nullptr;

  template <int V>
  struct Known {
    R mean[V], scale[V], beta[V];
  };
  template <int V>
  struct Lanes {
    Raw<T, V> x, dy, y, more;
  };
  template <int V>
  HETU_HD Known<V> known(std::int64_t channel) const {
    Known<V> k = {};
    of_channels<V>(mean, channel, k.mean);
    if constexpr (kBehind == Behind::Relu) {
      of_channels<V>(scale, channel, k.scale);
      of_channels<V>(beta, channel, k.beta);
    }
    return k;
  }
  template <int V>
  HETU_HD void load(std::int64_t at, Lanes<V>& lanes) const {
    load_raw(x + at, lanes.x);
    load_raw(dy + at, lanes.dy);
    if constexpr (kBehind == Behind::SkipAndRelu) {
      load_raw(y + at, lanes.y);
      load_raw(more + at, lanes.more);
    }
  }
  template <int V>
  HETU_HD void slopes(const Known<V>& k, const Lanes<V>& lanes, R (&apart)[V],
                      float (&slope)[V]) const {
    float value[V];
    widen(lanes.x, value);
    widen(lanes.dy, slope);
    for (int v = 0; v < V; ++v) apart[v] = R(value[v]) - k.mean[v];
    if constexpr (kBehind == Behind::SkipAndRelu) {
      float made[V], second[V];
      widen(lanes.y, made);
      widen(lanes.more, second);
      for (int v = 0; v < V; ++v) slope[v] = made[v] > 0 ? slope[v] + second[v] : 0.0F;
    } else if constexpr (kBehind == Behind::Relu) {
      for (int v = 0; v < V; ++v)
        if (!(normalised(R(value[v]), k.mean[v], k.scale[v], k.beta[v]) > 0)) slope[v] = 0;
    }
  }
  template <int V>
  HETU_HD void add(const Known<V>& k, const Lanes<V>& lanes, R (&sums)[2][V]) const {
    R apart[V];
    float slope[V];
    slopes(k, lanes, apart, slope);
    for (int v = 0; v < V; ++v) {
      sums[0][v] += R(slope[v]);
      sums[1][v] += R(slope[v]) * apart[v];
    }
  }
  template <int V>
  HETU_HD void write(const Known<V>& k, const Lanes<V>& lanes, std::int64_t at) const {
    if constexpr (kBehind == Behind::SkipAndRelu) {
      R apart[V];
      float slope[V];
      slopes(k, lanes, apart, slope);
      Raw<T, V> raw;
      narrow(slope, raw);
      store_raw(dskip + at, raw);
    }
  }
};

/// A body that computes gamma / sqrt(variance + epsilon), which the sums need with Relu.
template <class R>
struct ScaleOf {
  const float *gamma, *variance;
  R* scale;
  double epsilon;
  HETU_HD void operator()(std::int64_t c) const {
    scale[c] = R(scale_of(gamma[c], variance[c], epsilon));
  }
};

/// A body that computes dgamma and dbeta of a channel, and the coefficients of dx = scale * (slope
/// - c1 - (x - mean) * c2).
template <class R>
struct ChannelGradOf {
  const float *gamma, *variance;
  float *dgamma, *dbeta;
  R* coefficients;
  std::int64_t channels;
  double count, epsilon;
  HETU_HD void operator()(std::int64_t c, const double* sums) const {
    const double rstd = 1 / std::sqrt(double(variance[c]) + epsilon);
    dgamma[c] = static_cast<float>(sums[1] * rstd);
    dbeta[c] = static_cast<float>(sums[0]);
    coefficients[c] = R(scale_of(gamma[c], variance[c], epsilon));
    coefficients[channels + c] = R(sums[0] / count);
    coefficients[2 * channels + c] = R(sums[1] * rstd * rstd / count);
  }
};

template <class T, Behind kBehind>
struct ImageGradOf {
  using Slopes = SlopeOf<T, kBehind>;
  using R = typename Slopes::R;
  static constexpr int kAtOnce = 2;
  Slopes of;
  T* dx;
  const R* coefficients;
  std::int64_t channels;
  template <int V>
  struct Known {
    typename Slopes::template Known<V> of;
    R scale[V], share[V], by[V];
  };
  template <int V>
  using Lanes = typename Slopes::template Lanes<V>;
  template <int V>
  HETU_HD Known<V> known(std::int64_t channel) const {
    Known<V> k = {of.template known<V>(channel), {}, {}, {}};
    of_channels<V>(coefficients, channel, k.scale);
    of_channels<V>(coefficients + channels, channel, k.share);
    of_channels<V>(coefficients + 2 * channels, channel, k.by);
    return k;
  }
  template <int V>
  HETU_HD void load(std::int64_t at, typename Slopes::template Lanes<V>& lanes) const {
    of.load(at, lanes);
  }
  template <int V>
  HETU_HD void make(std::int64_t at, const Known<V>& k,
                    const typename Slopes::template Lanes<V>& lanes) const {
    R apart[V];
    float slope[V], made[V];
    of.slopes(k.of, lanes, apart, slope);
    for (int v = 0; v < V; ++v)
      made[v] = static_cast<float>(k.scale[v] * (R(slope[v]) - k.share[v] - apart[v] * k.by[v]));
    Raw<T, V> raw;
    narrow(made, raw);
    store_raw(dx + at, raw);
  }
};

template <class T, Behind kBehind>
struct BatchNormGrad {
  static constexpr bool kSkip = kBehind == Behind::SkipAndRelu;
  Channels channels;
  double epsilon;
  explicit BatchNormGrad(const KernelDesc& d) : channels(d), epsilon(d.attrs->real("epsilon")) {}
  std::int64_t scratch_bytes() const { return scratch_of(channels); }

  void operator()(const KernelCall& c) const {
    using R = Real<T>;
    constexpr bool kPlain = kBehind == Behind::Nothing;
    auto* const parts = static_cast<double*>(c.scratch);
    auto* const coefficients = reinterpret_cast<R*>(parts + parts_of(channels));
    T *const dx = c.out<T>(0), *const dskip = kSkip ? c.out<T>(3) : nullptr;
    SlopeOf<T, kBehind> of = {c.in<T>(0), c.in<T>(kPlain ? 4 : 5), c.in<float>(2),
                              kBehind == Behind::Relu ? c.in<float>(4) : nullptr, coefficients};
    if constexpr (kSkip) {
      of.y = c.in<T>(4);
      of.more = c.in<T>(6);
      of.dskip = dskip;
    }
    const float *const gamma = c.in<float>(1), *const variance = c.in<float>(3);
    const ChannelGradOf<R> then = {gamma,
                                   variance,
                                   c.out<float>(1),
                                   c.out<float>(2),
                                   coefficients,
                                   channels.count,
                                   static_cast<double>(channels.per_channel()),
                                   epsilon};
    if constexpr (kBehind == Behind::Relu)
      for_each(channels.count, ScaleOf<R>{gamma, variance, coefficients, epsilon});
    in_packs(channels, {of.x, of.dy, of.y, of.more, of.mean, of.beta, dx, dskip, coefficients},
             [&]<int V>(std::integral_constant<int, V>) {
               sum_channels<V>(channels, of, then, parts);
               const auto sweep = [&]<Behind kThen>(const SlopeOf<T, kThen>& slope) {
                 const ImageGradOf<T, kThen> body = {slope, dx, coefficients, channels.count};
                 sweep_channels<V>(channels, body);
               };
               // With a skip connection, the summing pass has applied the ReLU: dskip is the norm's
               // gradient.
               if constexpr (kSkip)
                 sweep(SlopeOf<T, Behind::Nothing>{of.x, dskip, of.mean, nullptr, coefficients});
               else
                 sweep(of);
             });
  }
};

template <class T>
using PlainGrad = BatchNormGrad<T, Behind::Nothing>;
template <class T>
using ReluGrad = BatchNormGrad<T, Behind::Relu>;
template <class T>
using AddReluGrad = BatchNormGrad<T, Behind::SkipAndRelu>;

}  // namespace

const KernelTable& batch_norm_grad_rows() {
  static const KernelTable kRows = {
      image_row("batch_norm_grad", as_they_lie<PlainGrad>),
      image_row("batch_norm_relu_grad", as_they_lie<ReluGrad>),
      image_row("batch_norm_add_relu_grad", as_they_lie<AddReluGrad>),
  };
  return kRows;
}

}  // namespace hetu::cuda
