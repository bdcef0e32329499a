// Gradients of attention. For fused attention, the weights are recomputed, for one block at a time.
#include "ops/cpu/attention_heads.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

using namespace vector_attention;

/// The common part of the gradients. `slope` is the derivative of the scores with respect to the
/// quantity whose gradient is computed.
struct ScoresGrad : Scores {
  float slope;
  ScoresGrad(const KernelDesc& d, float by) : Scores(d, 6), slope(by) {
    scratch =
        D * P + 2 * kBlockRows * P;  // V^T, dropped probs (factors before), gradient of scores
  }

  /// `drops` is true if dropout is active. `total` is the row's sum of probs times their
  /// gradients, or nullptr if it isn't known yet.
  struct Known {
    bool drops;
    const float* total = nullptr;
  };
  /// Computes row r of a block's gradient. `probs`, `dropped` and `ds` are rows that start at the
  /// block's first key.
  template <class T>
  void scores_grad(const Block& b, std::int64_t r, const T* probs, Known known, float* dropped,
                   float* ds) const {
    const KeyRange seen = range(b.first + r);
    const std::int64_t begin = seen.begin - b.keys.begin, end = seen.end - b.keys.begin;
    for (float* row : {dropped, ds}) {
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + b.keys.size(), 0.0f);
    }
    probs += begin;
    dropped += begin;
    ds += begin;
    drop_grad(probs, known.drops, seen.size(), dropped, ds);
    const float sum = known.total != nullptr ? *known.total : dot(probs, ds, seen.size());
#pragma omp simd
    for (std::int64_t j = 0; j < seen.size(); ++j) ds[j] = float(probs[j]) * (ds[j] - sum) * slope;
  }

  /// Turns dropout factors into dropped probs, and the gradient of dropped probs into that of
  /// probs.
  template <class T>
  static void drop_grad(const T* probs, bool drop, std::int64_t n, float* dropped, float* ds) {
    if (!drop) {
      std::copy_n(probs, n, dropped);
      return;
    }
#pragma omp simd
    for (std::int64_t j = 0; j < n; ++j) {
      ds[j] *= dropped[j];
      dropped[j] *= float(probs[j]);
    }
  }

  template <class T>
  static float dot(const T* a, const float* b, std::int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = 0; j < n; ++j) sum += float(a[j]) * b[j];
    return sum;
  }
};

/// Input 3 is probs, or with `kFused` the statistics of each row, from which a block's weights are
/// recomputed.
template <class T, bool kFused>
struct Backward : ScoresGrad {
  explicit Backward(const KernelDesc& d)
      : ScoresGrad(d, static_cast<float>(AttentionShape(d).scale)) {
    if (kFused) scratch += D * P + P + kBlockRows * P;  // K^T, bias, weights
    if (is_bfloat16(d)) scratch += 3 * (S + kBlockRows) * D;
  }

  /// The scratch memory of a head of keys. `rows` has space for three blocks of queries.
  struct Room {
    float *vt, *kt, *rows;
    HeadRows<const float> k;
    HeadRows<float> dk, dv;
  };

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t g, float* vt) {
      const std::int64_t at = kv(b, g);
      float* kt = vt + D * P + 2 * kBlockRows * P;
      float* room = kFused ? kt + D * P + P + kBlockRows * P : kt;
      const auto v = floats_of(c.in<T>(2) + at, S, D, kv_width, room);
      pack_transposed(v.data, S, D, v.stride, vt);
      const Room own = {vt,
                        kt,
                        room + 3 * S * D,
                        floats_of(c.in<T>(1) + at, S, D, kv_width, room),
                        sums_for(c.out<T>(1) + at, D, kv_width, room + S * D),
                        sums_for(c.out<T>(2) + at, D, kv_width, room + 2 * S * D)};
      if constexpr (kFused) {
        pack_transposed(own.k.data, S, D, own.k.stride, kt);
        pad(c, b, kt + D * P);
      }
      // If all keys are seen, the first block writes all gradients, and later blocks add to them.
      // Otherwise the sums start at zero.
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
    const T* y = c.in<T>(5) + query(b);
    const auto dy = floats_of(c.in<T>(4) + query(b), b.rows, D, width, room.rows + kBlockRows * D);
    T* to = c.out<T>(0) + query(b);
    const HeadRows<float> dq = sums_for(to, D, width, room.rows + 2 * kBlockRows * D);
    small_gemm({b.rows, padded(n), D, dy.stride, 1, P, P}, dy.data, room.vt + from, ds, false);
    if (drops(c.run)) factors(c.run, b, dropped);
    const auto of_row = [&](std::int64_t r, const auto* probs) {
      const float total = dot(y + r * width, dy.data + r * dy.stride, D);
      scores_grad(b, r, probs, {drops(c.run), &total}, dropped + r * P, ds + r * P);
    };
    if constexpr (kFused) {
      float *bias = room.kt + D * P, *tile = bias + P;
      small_gemm({b.rows, padded(n), D, q.stride, 1, P, P}, q.data, room.kt + from, tile, false);
      for (std::int64_t r = 0; r < b.rows; ++r) {
        weigh_again(c, b, r, bias, tile + r * P);
        of_row(r, tile + r * P);
      }
    } else {
      const T* probs = c.in<T>(3) + weights(b) + from;
      for (std::int64_t r = 0; r < b.rows; ++r) of_row(r, probs + r * S);
    }
    small_gemm({b.rows, D, n, P, 1, room.k.stride, dq.stride}, ds,
               room.k.data + from * room.k.stride, dq.data, false);
    store(dq, b.rows, D, to, width);
    small_gemm({n, D, b.rows, 1, P, q.stride, room.dk.stride}, ds, q.data,
               room.dk.data + from * room.dk.stride, more);
    small_gemm({n, D, b.rows, 1, P, dy.stride, room.dv.stride}, dropped, dy.data,
               room.dv.data + from * room.dv.stride, more);
  }

  /// Recomputes the weights of row r of a block from its products, for the keys that it sees by
  /// position.
  void weigh_again(const KernelCall& c, const Block& b, std::int64_t r, float* bias,
                   float* tile) const {
    const ScoreRow at{b.sample, b.head, b.first + r};
    const KeyRange seen = range(at.query);
    const float* stats = c.in<float>(3) + 2 * row_number(b, r);
    float* row = tile + seen.begin - b.keys.begin;
    const float* more = stats[1] != 0 ? added(c, at, seen, bias) : nullptr;
    if (more == nullptr) {
      std::fill_n(row, seen.size(), 0.0f);
    } else {
      softmax_again(row, more + seen.begin, seen.size(), {stats[0], stats[1]});
    }
  }
};

template <class T>
using AttentionGrad = Backward<T, false>;
template <class T>
using FusedAttentionGrad = Backward<T, true>;

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
      scores_grad(b, r, c.in<float>(2) + at + from, {drops(c.run)}, dropped + r * P, ds + r * P);
      float* to = c.out<float>(0) + at;
      std::fill(to, to + from, 0.0f);
      std::copy_n(ds + r * P, n, to + from);
      std::fill(to + b.keys.end, to + S, 0.0f);
    }
  }
};

}  // namespace

const KernelTable& vector_attention_grad_rows() {
  static const KernelTable kRows = {
      {"attention_grad", "vector", fits_either, prepare_either<AttentionGrad>},
      {"fused_attention_grad", "vector", fits_either, prepare_either<FusedAttentionGrad>},
      {"attention_scores_grad", "vector", fits, prepare<AttentionScoresGrad>},
  };
  return kRows;
}

}  // namespace hetu::cpu
