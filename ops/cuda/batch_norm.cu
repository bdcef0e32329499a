// Batch normalisation, what is fused with it, and the counter beside it: sums of every channel in
// pieces, then what follows from them, then every element. Sums are float64, the same bits on every
// card.
#include <launch.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "graph/base/bfloat16.h"
#include "graph/base/float16.h"
#include "ops/cuda/images.h"
#include "ops/cuda/packs.h"

namespace hetu::cuda {
namespace {

/// V neighbours, moved at once.
template <class T, int V>
struct alignas(sizeof(T) * V) [[gnu::may_alias]] Pack {
  T of[V];
};
template <int V, class T>
HETU_HD Pack<T, V> pack_at(const T* from, std::int64_t at) {
  return *reinterpret_cast<const Pack<T, V>*>(from + at);
}

/// How the elements of channels lie. Neighbours are of one channel in plain images, of neighbouring
/// ones in others.
struct Channels {
  std::int64_t images, count, plane;
  bool last;
  HETU_HD std::int64_t per_channel() const { return images * plane; }
  HETU_HD std::int64_t elements() const { return images * plane * count; }
  /// Numbers that are summed at once in channels-last images, a thread each; else an image is one.
  std::int64_t pieces(int pack) const {
    constexpr std::int64_t kThreads = 1 << 17, kLeast = 32, kMost = 4096;
    if (!last) return images;
    const std::int64_t wanted = kThreads * pack / std::max<std::int64_t>(count, 1);
    return std::clamp<std::int64_t>(std::min(wanted, per_channel() / kLeast), 1, kMost);
  }
  HETU_HD std::int64_t of(std::int64_t element) const {
    const std::int64_t some = last ? element : quotient(element, plane);
    return some - quotient(some, count) * count;
  }
};

/// A term has two numbers: Term::add(pack of elements, first channel, sums).
template <class Term, int V>
struct PieceOf {
  Term of;
  Channels channels;
  std::int64_t pieces;
  double* parts;  // [channel, piece, 2]
  HETU_HD void operator()(std::int64_t i) const {
    const std::int64_t groups = channels.count / V, piece = i / groups, channel = i % groups * V;
    const std::int64_t all = channels.per_channel(), end = piece_begin(all, pieces, piece + 1);
    double sums[V][2] = {};
    for (std::int64_t row = piece_begin(all, pieces, piece); row < end; ++row)
      of.template add<V>(row * channels.count + channel, channel, 1, sums);
    for (int v = 0; v < V; ++v)
      for (int s = 0; s < 2; ++s) parts[((channel + v) * pieces + piece) * 2 + s] = sums[v][s];
  }
};

/// Row `channel * images + image`, column: a pixel of plain images.
template <class Term>
struct PlaneOf : RowWork {
  static constexpr int kRounds = 2;
  Term of;
  Channels channels;
  double* parts;
  HETU_HD double term(int round, std::int64_t row, std::int64_t j, const double*) const {
    const std::int64_t channel = row / channels.images, image = row % channels.images;
    double sums[1][2] = {};
    of.template add<1>((image * channels.count + channel) * channels.plane + j, channel, 0, sums);
    return sums[0][round];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t row, const double* sums) const {
    parts[2 * row] = sums[0];
    parts[2 * row + 1] = sums[1];
  }
};

template <class Finish>
struct TotalOf : RowWork {
  static constexpr int kRounds = 2;
  Finish then;
  const double* parts;
  std::int64_t pieces;
  HETU_HD double term(int round, std::int64_t channel, std::int64_t piece, const double*) const {
    return parts[(channel * pieces + piece) * 2 + round];
  }
  HETU_HD void write(std::int64_t, std::int64_t, const double*) const {}
  HETU_HD void finish(std::int64_t channel, const double* sums) const { then(channel, sums); }
};

/// Sums the terms of every channel, and calls then(channel, the two sums).
template <int V, class Term, class Finish>
void sum_channels(const Channels& channels, const Term& term, const Finish& then, double* parts) {
  const std::int64_t pieces = channels.pieces(V);
  if (channels.last)
    for_each(pieces * (channels.count / V), PieceOf<Term, V>{term, channels, pieces, parts});
  else
    for_rows(channels.count * pieces, channels.plane, PlaneOf<Term>{{}, term, channels, parts});
  for_rows(channels.count, pieces, TotalOf<Finish>{{}, then, parts, pieces});
}

/// Scratch: parts of sums, then so many numbers per channel.
constexpr std::int64_t kCoefficients = 3;
std::int64_t scratch_of(const Channels& c) {
  const std::int64_t pieces = std::max(c.pieces(1), c.pieces(4));
  return c.count *
         (pieces * 2 * std::int64_t{sizeof(double)} + kCoefficients * std::int64_t{sizeof(double)});
}

/// Calls work(V): 4 where whole packs of all these can be moved, else 1.
template <class Work>
void in_packs(const Channels& c, std::initializer_list<const void*> tensors, const Work& work) {
  if ((c.last ? c.count : c.plane) % 4 == 0 && lie_in_packs(tensors))
    work(std::integral_constant<int, 4>());
  else
    work(std::integral_constant<int, 1>());
}

/// What elements are computed in: as exactly as on the CPU where float32 is kept of it.
template <class T>
using Real = std::conditional_t<std::is_same_v<T, float>, double, float>;

/// relu, if any, comes after what this gives.
template <class R>
HETU_HD float normalised(R x, R mean, R scale, R beta) {
  return static_cast<float>((x - mean) * scale + beta);
}
HETU_HD inline double scale_of(double gamma, double variance, double epsilon) {
  return gamma / std::sqrt(variance + epsilon);
}

template <class T>
struct SumAndSquares {
  const T* x;
  template <int V>
  HETU_HD void add(std::int64_t at, std::int64_t, int, double (*sums)[2]) const {
    const auto pack = pack_at<V>(x, at);
    for (int v = 0; v < V; ++v) {
      const double value = static_cast<float>(pack.of[v]);
      sums[v][0] += value;
      sums[v][1] += value * value;
    }
  }
};

/// The statistics of a channel, from the sums or the buffers, and coefficients.
struct StatisticsOf {
  const float *gamma, *beta, *mean, *variance;
  float *used_mean, *used_variance, *next_mean, *next_variance;
  double* coefficients;
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
    coefficients[3 * c] = now;
    coefficients[3 * c + 1] = scale_of(gamma[c], spread, epsilon);
    coefficients[3 * c + 2] = beta[c];
  }
  HETU_HD void operator()(std::int64_t c) const { (*this)(c, nullptr); }
};

template <class T, int V>
struct NormaliseOf {
  Channels channels;
  const T *x, *skip;
  T* y;
  const double* coefficients;
  bool relu;
  HETU_HD void operator()(std::int64_t i) const {
    using R = Real<T>;
    const std::int64_t at = i * V, first = channels.of(at);
    const auto from = pack_at<V>(x, at);
    Pack<T, V> add = {}, made;
    if (skip != nullptr) add = pack_at<V>(skip, at);
    for (int v = 0; v < V; ++v) {
      const double* const c = coefficients + 3 * (first + (channels.last ? v : 0));
      float value = normalised(R(static_cast<float>(from.of[v])), R(c[0]), R(c[1]), R(c[2]));
      if (skip != nullptr) value += static_cast<float>(add.of[v]);
      made.of[v] = static_cast<T>(relu ? fn::Relu()(value) : value);
    }
    *reinterpret_cast<Pack<T, V>*>(y + at) = made;
  }
};

Channels channels_of(const KernelDesc& d) {
  const cpu::Images x = cpu::images_of(d.inputs[0]);
  return {x.n, x.channels, x.plane(), d.images != Layout::Plain};
}

template <class T>
struct BatchNorm {
  std::string name;
  Channels channels;
  double momentum, epsilon;
  bool relu, skip;
  explicit BatchNorm(const KernelDesc& d)
      : name(d.name),
        channels(channels_of(d)),
        momentum(d.attrs->real("momentum")),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op != "batch_norm"),
        skip(d.inputs.size() > 5) {}
  std::int64_t scratch_bytes() const { return scratch_of(channels); }

  void operator()(const KernelCall& c) const {
    if (c.run.training) cpu::check_batch(name, channels.per_channel());
    const T *const x = c.in<T>(0), *const added = skip ? c.in<T>(5) : nullptr;
    T* const y = c.out<T>(0);
    in_packs(channels, {x, added, y}, [&]<int V>(std::integral_constant<int, V>) {
      auto* const parts = static_cast<double*>(c.scratch);
      double* const coefficients = parts + channels.count * channels.pieces(V) * 2;
      const StatisticsOf statistics = {c.in<float>(1),  c.in<float>(2),
                                       c.in<float>(3),  c.in<float>(4),
                                       c.out<float>(1), c.out<float>(2),
                                       c.out<float>(3), c.out<float>(4),
                                       coefficients,    static_cast<double>(channels.per_channel()),
                                       momentum,        epsilon,
                                       c.run.training};
      if (c.run.training)
        sum_channels<V>(channels, SumAndSquares<T>{x}, statistics, parts);
      else
        for_each(channels.count, statistics);
      for_each(channels.elements() / V,
               NormaliseOf<T, V>{channels, x, added, y, coefficients, relu});
    });
  }
};

/// The gradient that reaches the norm's result: of relu where that is above 0.
template <class T>
struct SlopeOf {
  const T *x, *dy, *y, *more;  // y, more: where relu follows a skip, its result, a second gradient
  const float *mean, *variance, *gamma, *beta;  // beta: where relu follows
  double epsilon;

  template <int V>
  HETU_HD void slopes(std::int64_t at, std::int64_t first, int step, Real<T>* apart,
                      float* slope) const {
    using R = Real<T>;
    const auto from = pack_at<V>(x, at), given = pack_at<V>(dy, at);
    Pack<T, V> made = {}, second = {};
    if (more != nullptr) {
      made = pack_at<V>(y, at);
      second = pack_at<V>(more, at);
    }
    for (int v = 0; v < V; ++v) {
      const std::int64_t c = first + step * v;
      const auto value = static_cast<float>(from.of[v]);
      slope[v] = static_cast<float>(given.of[v]);
      apart[v] = R(value) - R(mean[c]);
      if (more != nullptr)
        slope[v] =
            static_cast<float>(made.of[v]) > 0 ? slope[v] + static_cast<float>(second.of[v]) : 0.0F;
      else if (beta != nullptr &&
               !(normalised(R(value), R(mean[c]), R(scale_of(gamma[c], variance[c], epsilon)),
                            R(beta[c])) > 0))
        slope[v] = 0;
    }
  }
  template <int V>
  HETU_HD void add(std::int64_t at, std::int64_t first, int step, double (*sums)[2]) const {
    Real<T> apart[V];
    float slope[V];
    slopes<V>(at, first, step, apart, slope);
    for (int v = 0; v < V; ++v) {
      sums[v][0] += slope[v];
      sums[v][1] += double(slope[v]) * apart[v];
    }
  }
};

/// dgamma and dbeta of a channel; dx = c0 * (slope - c1 - (x - mean) * c2).
struct ChannelGradOf {
  const float *gamma, *variance;
  float *dgamma, *dbeta;
  double* coefficients;
  double count, epsilon;
  HETU_HD void operator()(std::int64_t c, const double* sums) const {
    const double rstd = 1 / std::sqrt(double(variance[c]) + epsilon);
    dgamma[c] = static_cast<float>(sums[1] * rstd);
    dbeta[c] = static_cast<float>(sums[0]);
    coefficients[3 * c] = gamma[c] * rstd;
    coefficients[3 * c + 1] = sums[0] / count;
    coefficients[3 * c + 2] = sums[1] * rstd * rstd / count;
  }
};

template <class T, int V>
struct ImageGradOf {
  SlopeOf<T> of;
  Channels channels;
  T *dx, *dskip;
  const double* coefficients;
  HETU_HD void operator()(std::int64_t i) const {
    using R = Real<T>;
    const std::int64_t at = i * V, first = channels.of(at);
    const int step = channels.last ? 1 : 0;
    Real<T> apart[V];
    float slope[V];
    of.template slopes<V>(at, first, step, apart, slope);
    Pack<T, V> to_x, to_skip;
    for (int v = 0; v < V; ++v) {
      const double* const c = coefficients + 3 * (first + step * v);
      const R made = R(c[0]) * (slope[v] - R(c[1]) - apart[v] * R(c[2]));
      to_x.of[v] = static_cast<T>(static_cast<float>(made));
      to_skip.of[v] = static_cast<T>(slope[v]);
    }
    *reinterpret_cast<Pack<T, V>*>(dx + at) = to_x;
    if (dskip != nullptr) *reinterpret_cast<Pack<T, V>*>(dskip + at) = to_skip;
  }
};

template <class T>
struct BatchNormGrad {
  Channels channels;
  double epsilon;
  bool relu, skip;
  explicit BatchNormGrad(const KernelDesc& d)
      : channels(channels_of(d)),
        epsilon(d.attrs->real("epsilon")),
        relu(d.op == "batch_norm_relu_grad"),
        skip(d.op == "batch_norm_add_relu_grad") {}
  std::int64_t scratch_bytes() const { return scratch_of(channels); }

  void operator()(const KernelCall& c) const {
    const SlopeOf<T> of = {c.in<T>(0),
                           c.in<T>(relu || skip ? 5 : 4),
                           skip ? c.in<T>(4) : nullptr,
                           skip ? c.in<T>(6) : nullptr,
                           c.in<float>(2),
                           c.in<float>(3),
                           c.in<float>(1),
                           relu ? c.in<float>(4) : nullptr,
                           epsilon};
    T *const dx = c.out<T>(0), *const dskip = skip ? c.out<T>(3) : nullptr;
    const auto work = [&]<int V>(std::integral_constant<int, V>) {
      auto* const parts = static_cast<double*>(c.scratch);
      double* const coefficients = parts + channels.count * channels.pieces(V) * 2;
      const ChannelGradOf then = {of.gamma,        of.variance,
                                  c.out<float>(1), c.out<float>(2),
                                  coefficients,    static_cast<double>(channels.per_channel()),
                                  epsilon};
      sum_channels<V>(channels, of, then, parts);
      for_each(channels.elements() / V, ImageGradOf<T, V>{of, channels, dx, dskip, coefficients});
    };
    in_packs(channels, {of.x, of.dy, of.y, of.more, dx, dskip}, work);
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

/// Images of any float as they lie, where all have one dtype and the rest is float32.
template <template <class> class Body>
PreparedKernel as_they_lie(const KernelDesc& d) {
  const DType dtype = d.inputs[0].dtype;
  const auto fits = [&](const TensorType& t) {
    return t.dtype == (t.shape.size() == d.inputs[0].shape.size() ? dtype : DType::Float32);
  };
  const bool fit = std::all_of(d.inputs.begin(), d.inputs.end(), fits) &&
                   std::all_of(d.outputs.begin(), d.outputs.end(), fits);
  if (fit && dtype == DType::BFloat16) return kernel<Body<BFloat16>>(d);
  if (fit && dtype == DType::Float16) return kernel<Body<Float16>>(d);
  return floats<Body<float>>(d);
}

}  // namespace

const KernelTable& batch_norm_rows() {
  static const KernelTable kRows = {
      image_row("batch_norm", as_they_lie<BatchNorm>),
      image_row("batch_norm_relu", as_they_lie<BatchNorm>),
      image_row("batch_norm_add_relu", as_they_lie<BatchNorm>),
      image_row("batch_norm_grad", as_they_lie<BatchNormGrad>),
      image_row("batch_norm_relu_grad", as_they_lie<BatchNormGrad>),
      image_row("batch_norm_add_relu_grad", as_they_lie<BatchNormGrad>),
      row("count_up", floats<CountUp>),
  };
  return kRows;
}

}  // namespace hetu::cuda
