// Attention on [B, S, H] without transposes: one task per (sample, head), blocks of query rows, and
// softmax with dropout on a block while it is in cache. Tasks share nothing but their inputs, so
// the bits depend neither on threads nor on the other samples of the micro-batch.
// Shape letters: S positions, P positions padded to whole vectors, D columns of a head, R rows of a
// block.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/dropout_factors.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/seen_keys.h"
#include "ops/cpu/small_gemm.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kBlockRows = 66;  // whole tiles of small_gemm
constexpr std::int64_t kLanes = 32;      // threads that work at once, at most

struct Heads {
  std::int64_t samples, S, hidden, heads, D, P;
  std::uint64_t name_hash;
  DropoutRate rate;
  float scale;               // of scores: 1 / sqrt(D)
  int lanes;                 // threads for which scratch is there, whatever their number now
  std::int64_t scratch = 0;  // floats per thread

  explicit Heads(const KernelDesc& d)
      : samples(d.inputs[0].shape[0]),
        S(d.inputs[0].shape[1]),
        hidden(d.inputs[0].shape[2]),
        heads(d.attrs->integer("heads")),
        D(hidden / heads),
        P(padded(S)),
        name_hash(d.name_hash),
        rate(DropoutRate::of(d.attrs->real("dropout"))),
        scale(static_cast<float>(1.0 / std::sqrt(double(D)))),
        lanes(static_cast<int>(std::min(samples * heads, kLanes))) {}

  std::int64_t scratch_bytes() const { return lanes * scratch * std::int64_t(sizeof(float)); }
  bool drops(const RunContext& run) const { return run.training && rate.threshold > 0; }

  /// Factors of `rows` rows from row i of head h, at stride P.
  void factors(const RunContext& run, std::int64_t b, std::int64_t h, std::int64_t i,
               std::int64_t rows, float* out) const {
    const auto stream = DropoutStream::of(run.seed, name_hash, run.step, run.sample_offset + b);
    for (std::int64_t r = 0; r < rows; ++r)
      dropout_factors(stream, rate, ((h * S) + i + r) * S, S, out + r * P);
  }

  /// Calls body(b, h, scratch of this thread) for every sample and head.
  template <class Body>
  void for_heads(const KernelCall& c, const Body& body) const {
    auto* all = static_cast<float*>(c.scratch);
#pragma omp parallel for collapse(2) schedule(static) \
    num_threads(std::min(lanes, omp_get_max_threads()))
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t h = 0; h < heads; ++h) body(b, h, all + omp_get_thread_num() * scratch);
  }
};

bool fits(const KernelDesc& d) {
  return is_float32(d) && count_of(d.inputs[0]) > 0 &&
         (d.inputs[0].shape[2] / d.attrs->integer("heads")) % kVector == 0;
}

struct Attention : Heads {
  SeenKeys seen;
  explicit Attention(const KernelDesc& d) : Heads(d), seen(d.inputs[3]) {
    scratch = D * P + P + 2 * kBlockRows * P;  // K^T, bias, tile, factors
  }

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t h, float* work) { head(c, b, h, work); });
  }

  void head(const KernelCall& c, std::int64_t b, std::int64_t h, float* kt) const {
    float *bias = kt + D * P, *tile = bias + P, *keep = tile + kBlockRows * P;
    const std::int64_t at = b * S * hidden + h * D;
    pack_transposed(c.in<float>(1) + at, S, D, hidden, kt);
    if (!seen.given) {
      const std::int32_t* mask = c.in<std::int32_t>(3) + b * S;
      for (std::int64_t j = 0; j < S; ++j) bias[j] = static_cast<float>(mask[j] - 1) * 10000.0f;
    }
    for (std::int64_t i = 0; i < S; i += kBlockRows) {
      const std::int64_t rows = std::min(kBlockRows, S - i);
      small_gemm({rows, P, D, hidden, 1, P, P}, c.in<float>(0) + at + i * hidden, kt, tile, false);
      float* probs = c.out<float>(1) + ((b * heads + h) * S + i) * S;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::uint8_t* shown = seen.row(c, b, i + r, S);
        if (SeenKeys::nothing(shown, S)) {
          std::fill_n(tile + r * P, S, 0.0f);
          std::fill_n(probs + r * S, S, 0.0f);
          continue;
        }
        if (seen.given) hide(shown, bias);
        softmax(tile + r * P, bias, probs + r * S);
      }
      if (drops(c.run)) {
        factors(c.run, b, h, i, rows, keep);
        for (std::int64_t r = 0; r < rows; ++r) {
          float *row = tile + r * P, *f = keep + r * P;
#pragma omp simd
          for (std::int64_t j = 0; j < S; ++j) row[j] *= f[j];
        }
      }
      small_gemm({rows, D, S, P, 1, hidden, hidden}, tile, c.in<float>(2) + at,
                 c.out<float>(0) + at + i * hidden, false);
    }
  }

  void hide(const std::uint8_t* shown, float* bias) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
#pragma omp simd
    for (std::int64_t j = 0; j < S; ++j) bias[j] = shown[j] != 0 ? 0.0f : -kInfinity;
  }

  /// In place, and a copy to `probs`.
  void softmax(float* row, const float* bias, float* probs) const {
    float top = -std::numeric_limits<float>::infinity(), sum = 0;
#pragma omp simd reduction(max : top)
    for (std::int64_t j = 0; j < S; ++j) {
      const float x = row[j] * scale + bias[j];
      row[j] = x;
      top = x > top ? x : top;
    }
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < S; ++j) sum += row[j] = VectorMath::exp(row[j] - top);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < S; ++j) probs[j] = row[j] *= inverse;
  }
};

struct AttentionGrad : Heads {
  explicit AttentionGrad(const KernelDesc& d) : Heads(d) {
    scratch =
        D * P + 2 * kBlockRows * P;  // V^T, dropped probs (factors before), gradient of scores
  }

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t h, float* work) { head(c, b, h, work); });
  }

  void head(const KernelCall& c, std::int64_t b, std::int64_t h, float* vt) const {
    float *dropped = vt + D * P, *ds = dropped + kBlockRows * P;
    const std::int64_t at = b * S * hidden + h * D;
    pack_transposed(c.in<float>(2) + at, S, D, hidden, vt);
    for (std::int64_t i = 0; i < S; i += kBlockRows) {
      const std::int64_t rows = std::min(kBlockRows, S - i), from = at + i * hidden;
      const float *q = c.in<float>(0) + from, *k = c.in<float>(1) + at, *dy = c.in<float>(4) + from;
      const float* probs = c.in<float>(3) + ((b * heads + h) * S + i) * S;
      small_gemm({rows, P, D, hidden, 1, P, P}, dy, vt, ds, false);
      if (drops(c.run)) factors(c.run, b, h, i, rows, dropped);
      for (std::int64_t r = 0; r < rows; ++r)
        softmax_grad(probs + r * S, drops(c.run), dropped + r * P, ds + r * P);
      const bool more = i > 0;
      small_gemm({rows, D, S, P, 1, hidden, hidden}, ds, k, c.out<float>(0) + from, false);
      small_gemm({S, D, rows, 1, P, hidden, hidden}, ds, q, c.out<float>(1) + at, more);
      small_gemm({S, D, rows, 1, P, hidden, hidden}, dropped, dy, c.out<float>(2) + at, more);
    }
  }

  /// From factors to dropped probs, and from the gradient of dropped probs to that of raw scores.
  void softmax_grad(const float* probs, bool drop, float* dropped, float* ds) const {
    float dot = 0;
    if (drop) {
#pragma omp simd reduction(+ : dot)
      for (std::int64_t j = 0; j < S; ++j) {
        ds[j] *= dropped[j];
        dropped[j] *= probs[j];
        dot += probs[j] * ds[j];
      }
    } else {
#pragma omp simd reduction(+ : dot)
      for (std::int64_t j = 0; j < S; ++j) {
        dropped[j] = probs[j];
        dot += probs[j] * ds[j];
      }
    }
#pragma omp simd
    for (std::int64_t j = 0; j < S; ++j) ds[j] = probs[j] * (ds[j] - dot) * scale;
  }
};

template <class Body>
PreparedKernel prepare(const KernelDesc& d) {
  const Body body(d);
  return {body, body.scratch_bytes(), "vector"};
}

}  // namespace

const KernelTable& vector_attention_rows() {
  static const KernelTable kRows = {
      {"attention", "vector", fits, prepare<Attention>},
      {"attention_grad", "vector", fits, prepare<AttentionGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
