// Multi-head attention over [B, S, H], as plain loops. Shape letters: B samples, S positions (of
// queries or of keys), H hidden columns, D = H / heads columns of one head. probs are [B, heads,
// queries, keys].
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "ops/cpu/attention_shape.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The offsets of a row of queries, in elements: into q (or y, dy), into k (or v), and into probs.
struct Offsets {
  std::int64_t query, kv, probs;
  Offsets(const AttentionShape& s, const ScoreRow& at)
      : query((at.sample * s.queries + at.query) * s.width + at.head * s.columns),
        kv(at.sample * s.keys * s.kv_width + at.head / s.group * s.columns),
        probs(at.sample * s.heads * s.queries * s.keys + s.row(at.head, at.query)) {}
};

template <class T>
double dot(const T* a, const T* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += double(a[i]) * double(b[i]);
  return sum;
}

/// Returns the factor by which dropout multiplies an element of a sample's probs.
template <class T>
T factor(const AttentionShape& s, const RunContext& run, const PhiloxStream& stream,
         std::int64_t element) {
  if (!run.training || s.rate.threshold == 0) return T(1);
  return s.rate.keeps(stream.bits(element)) ? T(s.rate.scale) : T(0);
}

/// Returns the number that the mask adds to a score.
template <class T>
double bias(const AttentionMask& mask, const KernelCall& c, const ScoreRow& at, std::int64_t j) {
  if (mask.padding()) return (mask.padding_row(c, at.sample)[j] - 1) * 10000.0;
  if (mask.adds()) return double(mask.row<T>(c, at)[j]);
  return !mask.shows() || mask.row<std::uint8_t>(c, at)[j] != 0 ? 0.0 : -kInfinity;
}

template <class T>
struct Attention : AttentionShape {
  AttentionMask mask;
  explicit Attention(const KernelDesc& d) : AttentionShape(d), mask(d) {}

  void operator()(const KernelCall& c) const {
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < queries; ++i) score(c, {b, h, i});
  }

  void score(const KernelCall& c, const ScoreRow& at) const {
    const Offsets to(*this, at);
    const T *k = c.in<T>(1) + to.kv, *v = c.in<T>(2) + to.kv;
    T *y = c.out<T>(0) + to.query, *probs = c.out<T>(1) + to.probs;
    const KeyRange seen = range(at.query);
    std::fill_n(y, columns, T(0));
    std::fill_n(probs, keys, T(0));
    if (mask.hides_all(c, at, seen)) return;
    const T* q = c.in<T>(0) + to.query;
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      probs[j] =
          static_cast<T>(dot(q, k + j * kv_width, columns) * scale + bias<T>(mask, c, at, j));
    if (!softmax(probs + seen.begin, seen.size())) return;
    const PhiloxStream random = stream(c.run, at.sample);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const T p = probs[j] * factor<T>(*this, c.run, random, row(at.head, at.query) + j);
      for (std::int64_t l = 0; l < columns; ++l) y[l] += p * v[j * kv_width + l];
    }
  }

  /// Computes softmax in place. If the mask hides all keys, writes zeros and returns false.
  bool softmax(T* probs, std::int64_t n) const {
    const T top = *std::max_element(probs, probs + n);
    if (mask.adds() && top == -kInfinity && std::all_of(probs, probs + n, is_lowest)) {
      std::fill_n(probs, n, T(0));
      return false;
    }
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += double(probs[j] = std::exp(probs[j] - top));
    for (std::int64_t j = 0; j < n; ++j) probs[j] = static_cast<T>(probs[j] / sum);
    return true;
  }
  static bool is_lowest(T x) { return x == -kInfinity; }
};

/// Output 1 holds two numbers per row instead of probs: the maximum score, and the inverse of the
/// sum of exp(score - maximum). Both are 0 if a query sees no key.
template <class T>
struct FusedAttention : AttentionShape {
  AttentionMask mask;
  explicit FusedAttention(const KernelDesc& d) : AttentionShape(d), mask(d) {}

  void operator()(const KernelCall& c) const {
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < queries; ++i) score(c, {b, h, i});
  }

  void score(const KernelCall& c, const ScoreRow& at) const {
    const Offsets to(*this, at);
    const T *q = c.in<T>(0) + to.query, *k = c.in<T>(1) + to.kv, *v = c.in<T>(2) + to.kv;
    T *y = c.out<T>(0) + to.query, *stats = c.out<T>(1) + to.probs / keys * 2;
    const KeyRange seen = range(at.query);
    std::fill_n(y, columns, T(0));
    std::fill_n(stats, 2, T(0));
    if (mask.hides_all(c, at, seen)) return;
    // Rounded to T like the maximum, so that the gradient computes the same differences.
    const auto score = [&](std::int64_t j) {
      return double(
          static_cast<T>(dot(q, k + j * kv_width, columns) * scale + bias<T>(mask, c, at, j)));
    };
    double top = -kInfinity, sum = 0;
    bool hides = mask.adds();  // true if the mask hides every key; a NaN isn't hidden
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const double x = score(j);
      top = std::max(top, x);
      hides = hides && x == -kInfinity;
    }
    if (hides) return;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) sum += std::exp(score(j) - top);
    stats[0] = static_cast<T>(top);
    stats[1] = static_cast<T>(1 / sum);
    const PhiloxStream random = stream(c.run, at.sample);
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const T p = static_cast<T>(std::exp(score(j) - top) / sum) *
                  factor<T>(*this, c.run, random, row(at.head, at.query) + j);
      for (std::int64_t l = 0; l < columns; ++l) y[l] += p * v[j * kv_width + l];
    }
  }
};

/// Input 3 is probs, or with `kFused` output 1 of FusedAttention.
template <class T, bool kFused>
struct Backward : AttentionShape {
  AttentionMask mask;
  explicit Backward(const KernelDesc& d) : AttentionShape(d), mask(d, 6) {}

  void operator()(const KernelCall& c) const {
    std::fill_n(c.out<T>(0), samples * queries * width, T(0));
    for (int o = 1; o < 3; ++o) std::fill_n(c.out<T>(o), samples * keys * kv_width, T(0));
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t g = 0; g < kv_heads; ++g)
        for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
          for (std::int64_t i = 0; i < queries; ++i) score(c, {b, h, i});
  }

  /// Returns weight j of a row.
  T prob(const KernelCall& c, const ScoreRow& at, const Offsets& to, std::int64_t j) const {
    if (!kFused) return c.in<T>(3)[to.probs + j];
    const T* stats = c.in<T>(3) + to.probs / keys * 2;
    if (stats[1] == T(0)) return T(0);
    const T *q = c.in<T>(0) + to.query, *k = c.in<T>(1) + to.kv;
    const T score =
        static_cast<T>(dot(q, k + j * kv_width, columns) * scale + bias<T>(mask, c, at, j));
    return static_cast<T>(std::exp(double(score) - double(stats[0])) * double(stats[1]));
  }

  void score(const KernelCall& c, const ScoreRow& at) const {
    const Offsets to(*this, at);
    const T *q = c.in<T>(0) + to.query, *k = c.in<T>(1) + to.kv, *v = c.in<T>(2) + to.kv;
    const T* dy = c.in<T>(4) + to.query;
    const std::int64_t element = row(at.head, at.query);
    const PhiloxStream random = stream(c.run, at.sample);
    const KeyRange seen = range(at.query);
    // The row's sum of probs * dprobs.
    const double total = dot(dy, c.in<T>(5) + to.query, columns);
    T *dq = c.out<T>(0) + to.query, *dk = c.out<T>(1) + to.kv, *dv = c.out<T>(2) + to.kv;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) {
      const T p = prob(c, at, to, j), keep = factor<T>(*this, c.run, random, element + j);
      const double dp = keep * dot(dy, v + j * kv_width, columns);
      const T ds = static_cast<T>(p * (dp - total) * scale);
      for (std::int64_t l = 0; l < columns; ++l) {
        dq[l] += ds * k[j * kv_width + l];
        dk[j * kv_width + l] += ds * q[l];
        dv[j * kv_width + l] += p * keep * dy[l];
      }
    }
  }
};

template <class T>
using AttentionGrad = Backward<T, false>;
template <class T>
using FusedAttentionGrad = Backward<T, true>;

template <class T>
struct AttentionScoresGrad : AttentionShape {
  explicit AttentionScoresGrad(const KernelDesc& d) : AttentionShape(d) {}

  void operator()(const KernelCall& c) const {
    std::fill_n(c.out<T>(0), samples * heads * queries * keys, T(0));
#pragma omp parallel for collapse(2)
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h)
        for (std::int64_t i = 0; i < queries; ++i) score(c, {b, h, i});
  }

  void score(const KernelCall& c, const ScoreRow& at) const {
    const Offsets to(*this, at);
    const T *dy = c.in<T>(0) + to.query, *v = c.in<T>(1) + to.kv, *probs = c.in<T>(2) + to.probs;
    const PhiloxStream random = stream(c.run, at.sample);
    const KeyRange seen = range(at.query);
    const auto dprobs = [&](std::int64_t j) {
      return factor<T>(*this, c.run, random, row(at.head, at.query) + j) *
             dot(dy, v + j * kv_width, columns);
    };
    double total = 0;
    for (std::int64_t j = seen.begin; j < seen.end; ++j) total += probs[j] * dprobs(j);
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      c.out<T>(0)[to.probs + j] = static_cast<T>(probs[j] * (dprobs(j) - total));
  }
};

}  // namespace

const KernelTable& reference_attention_rows() {
  static const KernelTable kRows = {
      {"attention", "reference", nullptr, reference<Attention>},
      {"attention_grad", "reference", nullptr, reference<AttentionGrad>},
      {"fused_attention", "reference", nullptr, reference<FusedAttention>},
      {"fused_attention_grad", "reference", nullptr, reference<FusedAttentionGrad>},
      {"attention_scores_grad", "reference", nullptr, reference<AttentionScoresGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
