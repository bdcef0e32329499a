// Attention with its weights as an output, or fused, with two numbers per row instead.
#include "ops/cpu/attention_heads.h"
#include "ops/cpu/set_rounded.h"
#include "ops/cpu/tables.h"

namespace hetu::cpu {
namespace {

using namespace vector_attention;

/// Output 1 is probs, or with `kFused` the statistics of each row.
template <class T, bool kFused>
struct Forward : Scores {
  explicit Forward(const KernelDesc& d) : Scores(d, 3) {
    scratch = D * P + P + 2 * kBlockRows * P;                 // K^T, bias, tile, factors
    if (is_bfloat16(d)) scratch += (S + 2 * kBlockRows) * D;  // K or V; rows of q and y
  }

  void operator()(const KernelCall& c) const {
    for_heads(c, [&](std::int64_t b, std::int64_t g, float* kt) {
      float *bias = kt + D * P, *tile = bias + P, *room = tile + 2 * kBlockRows * P;
      const auto k = floats_of(c.in<T>(1) + kv(b, g), S, D, kv_width, room);
      pack_transposed(k.data, S, D, k.stride, kt);
      const auto v = floats_of(c.in<T>(2) + kv(b, g), S, D, kv_width, room);
      pad(c, b, bias);
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

  /// Turns row r of a block's products into weights, in place, and stores them (or their
  /// statistics) in output 1.
  void score(const KernelCall& c, const Block& b, std::int64_t r, float* bias, float* tile) const {
    const ScoreRow at{b.sample, b.head, b.first + r};
    const KeyRange seen = range(at.query);
    const std::int64_t from = b.keys.begin;
    RowStats stats;
    if (const float* more = added(c, at, seen, bias))
      stats = softmax(tile + seen.begin - from, more + seen.begin, seen.size());
    const KeyRange kept = stats.inverse != 0 ? seen : KeyRange{from, from};
    std::fill(tile, tile + kept.begin - from, 0.0f);
    std::fill(tile + kept.end - from, tile + b.keys.size(), 0.0f);
    if constexpr (kFused) {
      float* to = c.out<float>(1) + 2 * row_number(b, r);
      to[0] = stats.top;
      to[1] = stats.inverse;
    } else {
      store_probs(tile + kept.begin - from, kept, c.out<T>(1) + weights(b) + r * S);
    }
  }

  void store_probs(const float* row, KeyRange kept, T* probs) const {
    std::fill(probs, probs + kept.begin, T(0.0f));
#pragma omp simd
    for (std::int64_t j = kept.begin; j < kept.end; ++j) set_rounded(probs[j], row[j - kept.begin]);
    std::fill(probs + kept.end, probs + S, T(0.0f));
  }
};

template <class T>
using Attention = Forward<T, false>;
template <class T>
using FusedAttention = Forward<T, true>;

}  // namespace

const KernelTable& vector_attention_rows() {
  static const KernelTable kRows = {
      {"attention", "vector", fits_either, prepare_either<Attention>},
      {"fused_attention", "vector", fits_either, prepare_either<FusedAttention>},
  };
  return kRows;
}

}  // namespace hetu::cpu
