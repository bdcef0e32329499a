// Attention of several heads over [B, S, H], as plain loops. Shape letters: B samples, S positions,
// H hidden, D = H / heads columns of one head; probs are [B, heads, S, S].
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/seen_keys.h"
#include "ops/cpu/tables.h"
#include "ops/philox.h"

namespace hetu::cpu {
namespace {

struct Heads {
  std::int64_t samples, positions, hidden, heads, columns;
  std::uint64_t name_hash;
  DropoutRate rate;
  double scale;  // of scores: 1 / sqrt(D)

  explicit Heads(const KernelDesc& d)
      : samples(d.inputs[0].shape[0]),
        positions(d.inputs[0].shape[1]),
        hidden(d.inputs[0].shape[2]),
        heads(d.attrs->integer("heads")),
        columns(hidden / heads),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("dropout"))),
        scale(1.0 / std::sqrt(double(columns))) {}

  /// What dropout multiplies element (h, i, j) of a sample's probs by.
  template <class T>
  T factor(const RunContext& run, const DropoutStream& stream, std::int64_t element) const {
    if (!run.training || rate.threshold == 0) return T(1);
    return rate.keeps(stream.bits(element)) ? T(rate.scale) : T(0);
  }
  DropoutStream stream(const RunContext& run, std::int64_t b) const {
    return DropoutStream::of(run.seed, name_hash, run.step, run.sample_offset + b);
  }
};

template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

template <class T>
struct Attention : Heads {
  SeenKeys seen;
  explicit Attention(const KernelDesc& d) : Heads(d), seen(d.inputs[3]) {}

  void operator()(const KernelCall& c) const {
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < positions; ++i) row(c, b, h, i);
  }

  void row(const KernelCall& c, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t at = b * positions * hidden + h * columns;
    const T *q = c.in<T>(0) + at + i * hidden, *k = c.in<T>(1) + at, *v = c.in<T>(2) + at;
    T* y = c.out<T>(0) + at + i * hidden;
    const std::int64_t element = (h * positions + i) * positions;
    T* probs = c.out<T>(1) + b * heads * positions * positions + element;
    const std::uint8_t* shown = seen.row(c, b, i, positions);
    if (SeenKeys::nothing(shown, positions)) {
      std::fill_n(probs, positions, T(0));
      std::fill_n(y, columns, T(0));
      return;
    }
    for (std::int64_t j = 0; j < positions; ++j)
      probs[j] = static_cast<T>(dot(q, k + j * hidden, columns) * scale + bias(c, b, j, shown));
    const T top = *std::max_element(probs, probs + positions);
    double sum = 0;
    for (std::int64_t j = 0; j < positions; ++j) sum += double(probs[j] = std::exp(probs[j] - top));
    for (std::int64_t j = 0; j < positions; ++j) probs[j] = static_cast<T>(probs[j] / sum);
    const DropoutStream random = stream(c.run, b);
    std::fill_n(y, columns, T(0));
    for (std::int64_t j = 0; j < positions; ++j) {
      const T p = probs[j] * factor<T>(c.run, random, element + j);
      for (std::int64_t l = 0; l < columns; ++l) y[l] += p * v[j * hidden + l];
    }
  }

  double bias(const KernelCall& c, std::int64_t b, std::int64_t j,
              const std::uint8_t* shown) const {
    if (shown == nullptr) return (c.in<std::int32_t>(3)[b * positions + j] - 1) * 10000.0;
    return shown[j] != 0 ? 0.0 : -std::numeric_limits<double>::infinity();
  }
};

template <class T>
struct AttentionGrad : Heads {
  explicit AttentionGrad(const KernelDesc& d) : Heads(d) {}

  void operator()(const KernelCall& c) const {
    for (int o = 0; o < 3; ++o) std::fill_n(c.out<T>(o), samples * positions * hidden, T(0));
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < positions; ++i) row(c, b, h, i);
  }

  /// Two passes over the row, since the gradient of a score needs the row's sum of probs * dprobs.
  void row(const KernelCall& c, std::int64_t b, std::int64_t h, std::int64_t i) const {
    const std::int64_t at = b * positions * hidden + h * columns;
    const T *q = c.in<T>(0) + at + i * hidden, *k = c.in<T>(1) + at, *v = c.in<T>(2) + at;
    const T* dy = c.in<T>(4) + at + i * hidden;
    const std::int64_t element = (h * positions + i) * positions;
    const T* probs = c.in<T>(3) + b * heads * positions * positions + element;
    const DropoutStream random = stream(c.run, b);
    double total = 0;
    for (std::int64_t j = 0; j < positions; ++j)
      total += probs[j] * factor<T>(c.run, random, element + j) * dot(dy, v + j * hidden, columns);
    T *dq = c.out<T>(0) + at + i * hidden, *dk = c.out<T>(1) + at, *dv = c.out<T>(2) + at;
    for (std::int64_t j = 0; j < positions; ++j) {
      const T keep = factor<T>(c.run, random, element + j);
      const double dp = keep * dot(dy, v + j * hidden, columns);
      const T ds = static_cast<T>(probs[j] * (dp - total) * scale);
      for (std::int64_t l = 0; l < columns; ++l) {
        dq[l] += ds * k[j * hidden + l];
        dk[j * hidden + l] += ds * q[l];
        dv[j * hidden + l] += probs[j] * keep * dy[l];
      }
    }
  }
};

}  // namespace

const KernelTable& reference_attention_rows() {
  static const KernelTable kRows = {
      {"attention", "reference", nullptr, reference<Attention>},
      {"attention_grad", "reference", nullptr, reference<AttentionGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
