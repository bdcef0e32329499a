// Attention on [B, S, H] without transposes: one task per sample and head of keys, blocks of query
// rows, and softmax with dropout on a block while it is in cache. Keys that no row of a block sees
// by its place are skipped. Tasks share nothing but their inputs, so the bits depend neither on
// threads nor on the other samples of the micro-batch.
// T is float or BFloat16, as values lie in memory; what is bfloat16 is widened head by head, and
// products, softmax and the sums of gradients are float32's.
// Shape letters: S keys, P keys padded to whole vectors, D columns of a head, R rows of a block.
#include <omp.h>

#include <algorithm>
#include <limits>

#include "ops/cpu/attention_shape.h"
#include "ops/cpu/dropout_factors.h"
#include "ops/cpu/kernel_shapes.h"
#include "ops/cpu/small_gemm.h"
#include "ops/cpu/tables.h"
#include "ops/cpu/vector_math.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kBlockRows = 66;  // whole tiles of small_gemm
constexpr std::int64_t kLanes = 32;      // threads that work at once, at most
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Rows [first, first + rows) of head h of the queries, and the keys that they see among them,
/// from a whole vector on.
struct Block {
  std::int64_t sample, head, first, rows;
  KeyRange keys;
};

struct Heads : AttentionShape {
  std::int64_t S, D, P;
  float factor;              // of scores
  int lanes;                 // threads for which scratch is there, whatever their number now
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

  /// Factors of a block's rows, at stride P.
  void factors(const RunContext& run, const Block& b, float* out) const {
    const DropoutStream random = stream(run, b.sample);
    for (std::int64_t r = 0; r < b.rows; ++r)
      dropout_factors(random, rate, row(b.head, b.first + r) + b.keys.begin, b.keys.size(),
                      out + r * P);
  }

  /// Calls body(sample, head of keys, scratch of this thread) for all.
  template <class Body>
  void for_heads(const KernelCall& c, const Body& body) const {
    auto* all = static_cast<float*>(c.scratch);
#pragma omp parallel for collapse(2) schedule(static) \
    num_threads(std::min(lanes, omp_get_max_threads()))
    for (std::int64_t b = 0; b < samples; ++b)
      for (std::int64_t g = 0; g < kv_heads; ++g) body(b, g, all + omp_get_thread_num() * scratch);
  }

  /// Calls body(block) for the rows of the heads that read head g of the keys.
  template <class Body>
  void for_blocks(std::int64_t b, std::int64_t g, const Body& body) const {
    for (std::int64_t h = g * group; h < (g + 1) * group; ++h)
      for (std::int64_t i = 0; i < queries; i += kBlockRows) {
        const std::int64_t rows = std::min(kBlockRows, queries - i);
        const std::int64_t end = range(i + rows - 1).end;
        body(Block{b, h, i, rows, {std::min(range(i).begin / kVector * kVector, end), end}});
      }
  }

  /// The first element of a block's rows of q, y or dy.
  std::int64_t query(const Block& b) const {
    return (b.sample * queries + b.first) * width + b.head * D;
  }
  /// The first element of head g of k or v, and of their gradients.
  std::int64_t kv(std::int64_t b, std::int64_t g) const { return b * S * kv_width + g * D; }
  /// The first element of a block's rows of probs.
  std::int64_t weights(const Block& b) const {
    return b.sample * heads * queries * S + row(b.head, b.first);
  }
};

/// Rows of a head as floats.
template <class Float>
struct HeadRows {
  Float* data;
  std::int64_t stride;  ///< from one row to the next
};

/// Where they lie, or a copy in `room`.
HeadRows<const float> floats_of(const float* x, std::int64_t, std::int64_t, std::int64_t stride,
                                float*) {
  return {x, stride};
}
HeadRows<const float> floats_of(const BFloat16* x, std::int64_t rows, std::int64_t columns,
                                std::int64_t stride, float* room) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) room[r * columns + j] = float(x[r * stride + j]);
  return {room, columns};
}

/// Where sums for rows are made: there, or in `room`, from where store() rounds them.
HeadRows<float> sums_for(float* y, std::int64_t, std::int64_t stride, float*) {
  return {y, stride};
}
HeadRows<float> sums_for(BFloat16*, std::int64_t columns, std::int64_t, float* room) {
  return {room, columns};
}
void store(const HeadRows<float>&, std::int64_t, std::int64_t, float*, std::int64_t) {}
void store(const HeadRows<float>& from, std::int64_t rows, std::int64_t columns, BFloat16* y,
           std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j)
      y[r * stride + j] = BFloat16(from.data[r * from.stride + j]);
}

bool fits(const KernelDesc& d) {
  return is_float32(d) && count_of(d.inputs[0]) > 0 && count_of(d.inputs[1]) > 0 &&
         (d.inputs[0].shape[2] / d.attrs->integer("heads")) % kVector == 0;
}

bool fits_either(const KernelDesc& d) { return is_bfloat16(d) ? fits(widened(d)) : fits(d); }

template <class T>
struct Attention : Heads {
  AttentionMask mask;
  explicit Attention(const KernelDesc& d) : Heads(d), mask(d) {
    scratch = D * P + P + 2 * kBlockRows * P;                 // K^T, bias, tile, factors
    if (is_bfloat16(d)) scratch += (S + 2 * kBlockRows) * D;  // K or V; rows of q and y
  }

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t g, float* kt) {
      float *bias = kt + D * P, *tile = bias + P, *room = tile + 2 * kBlockRows * P;
      const auto k = floats_of(c.in<T>(1) + kv(b, g), S, D, kv_width, room);
      pack_transposed(k.data, S, D, k.stride, kt);
      const auto v = floats_of(c.in<T>(2) + kv(b, g), S, D, kv_width, room);
      for (std::int64_t j = 0; j < S; ++j)
        bias[j] = mask.padding() ? static_cast<float>(mask.padding_row(c, b)[j] - 1) * 10000.0f : 0;
      for_blocks(b, g, [&](const Block& one) { block(c, one, {kt, bias, tile, room + S * D}, v); });
    });
  }

  struct Room {
    float *kt, *bias, *tile, *rows;
  };

  void block(const KernelCall& c, const Block& b, const Room& room,
             const HeadRows<const float>& v) const {
    const std::int64_t n = b.keys.size(), from = b.keys.begin;
    float *bias = room.bias, *tile = room.tile;
    const auto q = floats_of(c.in<T>(0) + query(b), b.rows, D, width, room.rows);
    small_gemm({b.rows, padded(n), D, q.stride, 1, P, P}, q.data, room.kt + from, tile, false);
    for (std::int64_t r = 0; r < b.rows; ++r) score(c, b, r, bias, tile + r * P);
    if (drops(c.run)) {
      float* keep = tile + kBlockRows * P;
      factors(c.run, b, keep);
      for (std::int64_t r = 0; r < b.rows; ++r) {
        float *to = tile + r * P, *f = keep + r * P;
#pragma omp simd
        for (std::int64_t j = 0; j < n; ++j) to[j] *= f[j];
      }
    }
    T* to = c.out<T>(0) + query(b);
    const HeadRows<float> y = sums_for(to, D, width, room.rows + kBlockRows * D);
    small_gemm({b.rows, D, n, P, 1, v.stride, y.stride}, tile, v.data + from * v.stride, y.data,
               false);
    store(y, b.rows, D, to, width);
  }

  /// From row r of a block's products to its weights, in place and in probs.
  void score(const KernelCall& c, const Block& b, std::int64_t r, float* bias, float* tile) const {
    const ScoreRow at{b.sample, b.head, b.first + r};
    const KeyRange seen = range(at.query);
    T* probs = c.out<T>(1) + weights(b) + r * S;
    const std::int64_t from = b.keys.begin;
    bool some = !mask.hides_all(c, at, seen);
    if (some) {
      const float* added = bias;
      if (mask.shows()) hide(mask.row<std::uint8_t>(c, at), seen, bias);
      if (mask.adds()) added = mask.row<float>(c, at);
      some = softmax(tile + seen.begin - from, added + seen.begin, seen.size(), probs + seen.begin);
    }
    const KeyRange kept = some ? seen : KeyRange{from, from};
    std::fill(tile, tile + kept.begin - from, 0.0f);
    std::fill(tile + kept.end - from, tile + b.keys.size(), 0.0f);
    std::fill(probs, probs + kept.begin, T(0.0f));
    std::fill(probs + kept.end, probs + S, T(0.0f));
  }

  void hide(const std::uint8_t* shown, KeyRange seen, float* bias) const {
#pragma omp simd
    for (std::int64_t j = seen.begin; j < seen.end; ++j)
      bias[j] = shown[j] != 0 ? 0.0f : -kInfinity;
  }

  /// In place, and a copy to `probs`. False if what was added hides all n keys.
  bool softmax(float* row, const float* bias, std::int64_t n, T* probs) const {
    float top = -kInfinity, sum = 0;
#pragma omp simd reduction(max : top)
    for (std::int64_t j = 0; j < n; ++j) {
      const float x = row[j] * factor + bias[j];
      row[j] = x;
      top = x > top ? x : top;
    }
    if (mask.adds() && top == -kInfinity &&
        std::all_of(row, row + n, [](float x) { return x == -kInfinity; }))
      return false;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < n; ++j) sum += row[j] = VectorMath::exp(row[j] - top);
    const float inverse = 1.0f / sum;
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) probs[j] = T(row[j] *= inverse);
    return true;
  }
};

/// What both gradients have in common. `slope` is that of scores by what is asked for.
struct ScoresGrad : Heads {
  float slope;
  ScoresGrad(const KernelDesc& d, float by) : Heads(d), slope(by) {
    scratch =
        D * P + 2 * kBlockRows * P;  // V^T, dropped probs (factors before), gradient of scores
  }

  /// Of row r of a block: rows of `probs`, `dropped` and `ds` from the block's first key on.
  template <class T>
  void scores_grad(const Block& b, std::int64_t r, const T* probs, bool drop, float* dropped,
                   float* ds) const {
    const KeyRange seen = range(b.first + r);
    const std::int64_t begin = seen.begin - b.keys.begin, end = seen.end - b.keys.begin;
    for (float* row : {dropped, ds}) {
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + b.keys.size(), 0.0f);
    }
    softmax_grad(probs + begin, drop, seen.size(), dropped + begin, ds + begin);
  }

  /// From factors to dropped probs, and from the gradient of dropped probs to that of raw scores.
  template <class T>
  void softmax_grad(const T* probs, bool drop, std::int64_t n, float* dropped, float* ds) const {
    float dot = 0;
    if (drop) {
#pragma omp simd reduction(+ : dot)
      for (std::int64_t j = 0; j < n; ++j) {
        ds[j] *= dropped[j];
        dropped[j] *= float(probs[j]);
        dot += float(probs[j]) * ds[j];
      }
    } else {
#pragma omp simd reduction(+ : dot)
      for (std::int64_t j = 0; j < n; ++j) {
        dropped[j] = float(probs[j]);
        dot += float(probs[j]) * ds[j];
      }
    }
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) ds[j] = float(probs[j]) * (ds[j] - dot) * slope;
  }
};

template <class T>
struct AttentionGrad : ScoresGrad {
  explicit AttentionGrad(const KernelDesc& d)
      : ScoresGrad(d, static_cast<float>(AttentionShape(d).scale)) {
    if (is_bfloat16(d)) scratch += 3 * (S + kBlockRows) * D;
  }

  /// Of a head of keys; `rows` has room for three blocks of queries.
  struct Room {
    float *vt, *rows;
    HeadRows<const float> k;
    HeadRows<float> dk, dv;
  };

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t g, float* vt) {
      const std::int64_t at = kv(b, g);
      float* room = vt + D * P + 2 * kBlockRows * P;
      const auto v = floats_of(c.in<T>(2) + at, S, D, kv_width, room);
      pack_transposed(v.data, S, D, v.stride, vt);
      const Room own = {vt, room + 3 * S * D, floats_of(c.in<T>(1) + at, S, D, kv_width, room),
                        sums_for(c.out<T>(1) + at, D, kv_width, room + S * D),
                        sums_for(c.out<T>(2) + at, D, kv_width, room + 2 * S * D)};
      // Where all keys are seen, the first block writes all gradients and the others add to them.
      bool more = !whole();
      for (std::int64_t j = 0; more && j < S; ++j)
        for (const HeadRows<float>& sum : {own.dk, own.dv})
          std::fill_n(sum.data + j * sum.stride, D, 0.0f);
      for_blocks(b, g, [&](const Block& one) {
        block(c, one, own, more);
        more = true;
      });
      store(own.dk, S, D, c.out<T>(1) + at, kv_width);
      store(own.dv, S, D, c.out<T>(2) + at, kv_width);
    });
  }

  void block(const KernelCall& c, const Block& b, const Room& room, bool more) const {
    float *dropped = room.vt + D * P, *ds = dropped + kBlockRows * P;
    const std::int64_t n = b.keys.size(), from = b.keys.begin;
    const auto q = floats_of(c.in<T>(0) + query(b), b.rows, D, width, room.rows);
    const auto dy = floats_of(c.in<T>(4) + query(b), b.rows, D, width, room.rows + kBlockRows * D);
    T* to = c.out<T>(0) + query(b);
    const HeadRows<float> dq = sums_for(to, D, width, room.rows + 2 * kBlockRows * D);
    const T* probs = c.in<T>(3) + weights(b) + from;
    small_gemm({b.rows, padded(n), D, dy.stride, 1, P, P}, dy.data, room.vt + from, ds, false);
    if (drops(c.run)) factors(c.run, b, dropped);
    for (std::int64_t r = 0; r < b.rows; ++r)
      scores_grad(b, r, probs + r * S, drops(c.run), dropped + r * P, ds + r * P);
    small_gemm({b.rows, D, n, P, 1, room.k.stride, dq.stride}, ds,
               room.k.data + from * room.k.stride, dq.data, false);
    store(dq, b.rows, D, to, width);
    small_gemm({n, D, b.rows, 1, P, q.stride, room.dk.stride}, ds, q.data,
               room.dk.data + from * room.dk.stride, more);
    small_gemm({n, D, b.rows, 1, P, dy.stride, room.dv.stride}, dropped, dy.data,
               room.dv.data + from * room.dv.stride, more);
  }
};

struct AttentionScoresGrad : ScoresGrad {
  explicit AttentionScoresGrad(const KernelDesc& d) : ScoresGrad(d, 1.0f) {}

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t g, float* vt) {
      pack_transposed(c.in<float>(1) + kv(b, g), S, D, kv_width, vt);
      for_blocks(b, g, [&](const Block& one) { block(c, one, vt); });
    });
  }

  void block(const KernelCall& c, const Block& b, float* vt) const {
    float *dropped = vt + D * P, *ds = dropped + kBlockRows * P;
    const std::int64_t from = b.keys.begin, n = b.keys.size();
    small_gemm({b.rows, padded(n), D, width, 1, P, P}, c.in<float>(0) + query(b), vt + from, ds,
               false);
    if (drops(c.run)) factors(c.run, b, dropped);
    for (std::int64_t r = 0; r < b.rows; ++r) {
      const std::int64_t at = weights(b) + r * S;
      scores_grad(b, r, c.in<float>(2) + at + from, drops(c.run), dropped + r * P, ds + r * P);
      float* to = c.out<float>(0) + at;
      std::fill(to, to + from, 0.0f);
      std::copy_n(ds + r * P, n, to + from);
      std::fill(to + b.keys.end, to + S, 0.0f);
    }
  }
};

template <class Body>
PreparedKernel prepare(const KernelDesc& d) {
  const Body body(d);
  return {body, body.scratch_bytes(), "vector"};
}

template <template <class> class Body>
PreparedKernel prepare_either(const KernelDesc& d) {
  return is_bfloat16(d) ? prepare<Body<BFloat16>>(d) : prepare<Body<float>>(d);
}

}  // namespace

const KernelTable& vector_attention_rows() {
  static const KernelTable kRows = {
      {"attention", "vector", fits_either, prepare_either<Attention>},
      {"attention_grad", "vector", fits_either, prepare_either<AttentionGrad>},
      {"attention_scores_grad", "vector", fits, prepare<AttentionScoresGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
