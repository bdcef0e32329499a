// The common part of the vector kernels of attention on [B, S, H]. There are no transposes. A task
// is one sample and one head of keys. It processes blocks of query rows, and computes softmax with
// dropout on a block while the block is in cache. Keys whose position no row of a block sees are
// skipped. Tasks share only their inputs, so results depend neither on the number of threads nor on
// the other samples of the micro-batch.
//
// T is the type in memory: float or BFloat16. bfloat16 values are widened head by head. Products,
// softmax and the sums of gradients are float32.
//
// Shape letters: S keys, P keys padded to whole vectors, D columns of a head, R rows of a block.
#pragma once
#include <omp.h>

#include <algorithm>
#include <limits>

#include "ops/cpu/attention_shape.h"
#include "ops/cpu/dropout_factors.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/small_gemm.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu::vector_attention {

inline constexpr std::int64_t kBlockRows = 66;  // a multiple of small_gemm's tile height
inline constexpr std::int64_t kLanes = 32;      // largest number of threads that work at once
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows [first, first + rows) of head h of the queries, and the range of keys that they see,
/// starting at a whole vector.
struct Block {
  std::int64_t sample, head, first, rows;
  KeyRange keys;
};

/// Sizes of attention with the division into tasks and blocks.
struct Heads : AttentionShape {
  std::int64_t S, D, P;
  float factor;  // of scores
  int lanes;     // number of threads with scratch memory, regardless of the current thread count
  std::int64_t scratch = 0;  // floats per thread

  explicit Heads(const KernelDesc& d)
      : AttentionShape(d),
        S(keys),
        D(columns),
        P(padded(S)),
        factor(static_cast<float>(scale)),
        lanes(static_cast<int>(std::min(samples * kv_heads, kLanes))) {}

  std::int64_t scratch_bytes() const { return lanes * scratch * std::int64_t(sizeof(float)); }
  bool drops(const RunContext& run) const { return run.training && rate.threshold > 0; }

  /// Writes the dropout factors of a block's rows, with stride P.
  void factors(const RunContext& run, const Block& b, float* out) const {
    const PhiloxStream random = stream(run, b.sample);
    for (std::int64_t r = 0; r < b.rows; ++r)
      dropout_factors(random, rate, row(b.head, b.first + r) + b.keys.begin, b.keys.size(),
                      out + r * P);
  }

  /// Calls body(sample, head of keys, this thread's scratch) for all samples and heads of keys.
  template <class Body>
  void for_heads(const KernelCall& c, const Body& body) const {
    auto* all = static_cast<float*>(c.scratch);
#pragma omp parallel for collapse(2) schedule(static) \
    num_threads(std::min(lanes, omp_get_max_threads()))
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t g = 0; g < kv_heads; ++g) body(b, g, all + omp_get_thread_num() * scratch);
  }

  /// Calls body(block) for all blocks of the query heads that read head g of the keys.
  template <class Body>
  void for_blocks(std::int64_t b, std::int64_t g, const Body& body) const {
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < queries; i += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, queries - i);
        const std::int64_t end = range(i + rows - 1).end;
        body(Block{b, h, i, rows, {std::min(range(i).begin / kVector * kVector, end), end}});
      }
  }

  /// Returns the offset of the first element of a block's rows in q, y or dy.
  std::int64_t query(const Block& b) const {
    return (b.sample * queries + b.first) * width + b.head * D;
  }
  /// Returns the offset of the first element of head g in k or v, or in their gradients.
  std::int64_t kv(std::int64_t b, std::int64_t g) const { return b * S * kv_width + g * D; }
  /// Returns the index of row r of a block among all rows of scores.
  std::int64_t row_number(const Block& b, std::int64_t r) const {
    return (b.sample * heads + b.head) * queries + b.first + r;
  }
  /// Returns the offset of the first element of a block's rows in probs.
  std::int64_t weights(const Block& b) const {
    return b.sample * heads * queries * S + row(b.head, b.first);
  }
};

/// Rows of a head as float32.
template <class Float>
struct HeadRows {
  Float* data;
  std::int64_t stride;  ///< floats from one row to the next
};

/// Returns the rows in place if they are float32, else a widened copy in `room`.
inline HeadRows<const float> floats_of(const float* x, std::int64_t, std::int64_t,
                                       std::int64_t stride, float*) {
  return {x, stride};
}
inline HeadRows<const float> floats_of(const BFloat16* x, std::int64_t rows, std::int64_t columns,
                                       std::int64_t stride, float* room) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) room[r * columns + j] = float(x[r * stride + j]);
  return {room, columns};
}

/// Returns memory for the sums of rows: y itself if it is float32, else `room`. store() then rounds
/// the sums to y.
inline HeadRows<float> sums_for(float* y, std::int64_t, std::int64_t stride, float*) {
  return {y, stride};
}
inline HeadRows<float> sums_for(BFloat16*, std::int64_t columns, std::int64_t, float* room) {
  return {room, columns};
}
inline void store(const HeadRows<float>&, std::int64_t, std::int64_t, float*, std::int64_t) {}
inline void store(const HeadRows<float>& from, std::int64_t rows, std::int64_t columns, BFloat16* y,
                  std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      set_rounded(y[r * stride + j], from.data[r * from.stride + j]);
}

/// Returns true for float32 if there are queries and keys and a head's columns are a multiple of a
/// vector.
inline bool fits(const KernelDesc& d) {
  return is_float32(d) && count_of(d.inputs[0]) > 0 && count_of(d.inputs[1]) > 0 &&
         (d.inputs[0].shape[2] / d.attrs->integer("heads")) % kVector == 0;
}

/// As above, for float32 or bfloat16.
inline bool fits_either(const KernelDesc& d) { return is_bfloat16(d) ? fits(widened(d)) : fits(d); }

/// The maximum of a row of scores, and the inverse of its sum of exponentials. The row's weights
/// can be recomputed from them. Both are 0 if the query sees no key.
struct RowStats {
  float top = 0, inverse = 0;
};

/// Attention scores with the mask applied.
struct Scores : Heads {
  AttentionMask mask;
  Scores(const KernelDesc& d, int mask_input) : Heads(d), mask(d, mask_input) {}

  /// Writes the padding's contribution to all scores of a sample: 0 or -10000 per key.
  void pad(const KernelCall& c, std::int64_t sample, float* bias) const {
    for (std::int64_t j = 0; j < S; ++j)
      bias[j] =
          mask.padding() ? static_cast<float>(mask.padding_row(c, sample)[j] - 1) * 10000.0f : 0;
  }

  /// Returns the numbers that are added to the scores of a row, one per key, or nullptr if the
  /// query sees no key. A bool mask is expanded into `bias`. Without a bool mask, `bias` must hold
  /// the result of pad().
  const float* added(const KernelCall& c, const ScoreRow& at, KeyRange seen, float* bias) const {
    if (mask.hides_all(c, at, seen)) return nullptr;
    if (mask.shows()) hide(mask.row<std::uint8_t>(c, at), seen, bias);
    return mask.adds() ? mask.row<float>(c, at) : bias;
  }

  /// Replaces the n scores of a row by their weights. Returns zeros if the mask hides all keys.
  RowStats softmax(float* row, const float* bias, std::int64_t n) const {
    float top = -kInfinity, sum = 0;
#pragma omp simd reduction(max : top)
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = row[j] * factor + bias[j];
      row[j] = x;
      top = x > top ? x : top;
    }
    if (mask.adds() && top == -kInfinity &&
        std::all_of(row, row + n, [](float x) { return x == -kInfinity; }))
      return {};
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < n; ++j) sum += row[j] = VectorMath::exp(row[j] - top);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) row[j] *= inverse;
    return {top, inverse};
  }

  /// Recomputes the same weights, bit for bit, from the result of softmax().
  void softmax_again(float* row, const float* bias, std::int64_t n, RowStats stats) const {
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = row[j] * factor + bias[j];
      row[j] = VectorMath::exp(x - stats.top) * stats.inverse;
    }
  }

 private:
  void hide(const std::uint8_t* shown, KeyRange seen, float* bias) const {
#pragma omp simd
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      bias[j] = shown[j] != 0 ? 0.0f : -kInfinity;
  }
};

/// Prepares a kernel from a body with scratch memory.
template <class Body>
PreparedKernel prepare(const KernelDesc& d) {
  const Body body(d);
  return {body, body.scratch_bytes(), "vector"};
}

/// As above, from `Body<T>` for the node's type T.
template <template <class> class Body>
PreparedKernel prepare_either(const KernelDesc& d) {
  return is_bfloat16(d) ? prepare<Body<BFloat16>>(d) : prepare<Body<float>>(d);
}

}  // namespace hetu::cpu::vector_attention
