// Flash attention for heads of at most 64 columns. A warp computes 16 queries. Their scores,
// weights and results stay in its registers from one product by matrix units to the next. The keys
// and values of the next tile are copied to shared memory meanwhile. Dropout decisions equal those
// of the CPU.
// Source: Dao 2023, "FlashAttention-2", section 3.
#include <block.h>

#include "ops/cuda/flash_registers.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

template <class T, int Wide>
struct RegistersForward : FlashRegisters<T, Wide> {
  using Base = FlashRegisters<T, Wide>;
  using Base::Base;
  using Base::kSide;
  using Base::kStep;
  using Base::kThreads;
  using Base::s;
  using typename Base::Scores;
  using typename Base::Turns;
  T* y = nullptr;

  struct Room {
    int q;
    Turns k, v, padding;
    int bytes;
  };
  HETU_HD static constexpr Room room() {
    SharedRoom r;
    return {r.tile<T>(kSide, Wide),
            {r.tile<T>(kSide, Wide), r.tile<T>(kSide, Wide)},
            {r.tile<T>(kSide, Wide), r.tile<T>(kSide, Wide)},
            {r.take(kSide, 4), r.take(kSide, 4)},
            r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    constexpr Room at = room();
    auto* const q_tile = block.template shared<T>(at.q);
    const std::int64_t tiles = this->query_tiles(), number = block.index();
    const ScoreRow first{number / tiles / s.heads, number / tiles % s.heads,
                         number % tiles * kSide};
    const int rows = this->rows(first.query, s.queries, kSide);
    const KeyRange seen = this->seen(first.query, rows);
    const PhiloxStream stream = this->run.moment.stream(s.name_hash, first.sample);
    this->bring(block, this->q + this->query(first), s.width, rows, q_tile);
    bring_keys(block, first, seen.begin, seen.end, false);
    block.sync();
    Sums<Wide> made;
    made.fill(0);
    RowValues top, sum;
    top.fill(-HUGE_VALF);
    sum.fill(0);
    typename Base::Decided decided;
    bool odd = false;
    for (std::int64_t key = seen.begin; key < seen.end; key += kSide, odd = !odd) {
      bring_keys(block, first, key + kSide, seen.end, !odd);
      const int keys = this->rows(key, seen.end, kSide);
      this->decide(decided, stream, first, key);
      Scores scores;
      scores.fill(0);
      // Loading the queries again needs fewer registers than keeping them.
      Factor<T, Wide> queries(q_tile, kStep);
      add_product<true>(scores, queries, block.template shared<T>(at.k[odd]), kStep);
      const auto* const padding = block.template shared<std::int32_t>(at.padding[odd]);
      this->template score<false>(scores, first, rows, key, keys, padding);
      soften(scores, made, top, sum);
      if (this->run.drops)
        scores.each(
            [&](const Position& p, float& x) { x = this->is_kept(decided.now, p) ? x : 0.0F; });
      Factor<T, kSide, true> weights(scores);
      add_product<false>(made, weights, block.template shared<T>(at.v[odd]), kStep);
      block.sync();
    }
    store(block, first, rows, made, top, sum, q_tile);
  }

 private:
  /// Starts loading the keys and values of a tile, if there is one.
  template <class Block>
  HETU_HD void bring_keys(const Block& block, const ScoreRow& first, std::int64_t key,
                          std::int64_t end, bool odd) const {
    if (key >= end) return;
    constexpr Room at = room();
    const int keys = this->rows(key, end, kSide);
    const std::int64_t from = this->kv(first, key);
    this->bring(block, this->k + from, s.kv_width, keys, block.template shared<T>(at.k[odd]));
    this->bring(block, this->v + from, s.kv_width, keys, block.template shared<T>(at.v[odd]));
    this->bring_padding(block, first, key, keys,
                        block.template shared<std::int32_t>(at.padding[odd]));
  }

  /// Turns scores into exponentials relative to the highest score so far, and scales earlier sums
  /// accordingly. Each lane keeps its own part of a row's sum.
  HETU_HD void soften(Scores& scores, Sums<Wide>& made, RowValues& top, RowValues& sum) const {
    RowValues highest = top;
    scores.each([&](const Position& p, float& x) {
      if (x > highest[p]) highest[p] = x;
    });
    highest.agree([](float a, float b) { return a > b ? a : b; });
    RowValues factor;
    factor.each([&](const Position& p, float& x) {
      const float now = highest[p];
      const float base = now == -HUGE_VALF ? 0.0F : now;  // a row that sees no key yet
      x = Base::power(top[p] - base);
      top[p] = now;
      highest[p] = base;
      sum[p] *= x;
    });
    made.each([&](const Position& p, float& x) { x *= factor[p]; });
    scores.each([&](const Position& p, float& x) {
      x = Base::power(x - highest[p]);
      sum[p] += x;
    });
  }

  template <class Block>
  HETU_HD void store(const Block& block, const ScoreRow& first, int rows, Sums<Wide>& made,
                     RowValues& top, RowValues& sum, T* staged) const {
    sum.agree([](float a, float b) { return a + b; });
    float* const of_rows = this->stats + 2 * this->row_of(first);
    RowValues factor;
    factor.each([&](const Position& p, float& x) {
      const bool any = sum[p] != 0;  // false if a query sees no key; the sum may be NaN
      const float inverse = any ? 1 / sum[p] : 0.0F;
      x = inverse * this->kept_scale();
      if (p.column != 0 || p.row >= rows) return;
      of_rows[2 * p.row] = any ? top[p] : 0.0F;
      of_rows[2 * p.row + 1] = inverse;
    });
    made.each([&](const Position& p, float& x) { x *= factor[p]; });
    this->put(block, made, staged, y + this->query(first), s.width, rows);
  }
};

template <class T, int Wide>
struct RegistersAttention {
  AttentionShape s;
  AttentionMask mask;
  explicit RegistersAttention(const KernelDesc& d) : s(d), mask(d) {}
  void operator()(const KernelCall& c) const {
    using Body = RegistersForward<T, Wide>;
    Body body(Heads(s, AttentionRun(c, s)), MaskBias(mask, c, 3));
    body.q = c.in<T>(0);
    body.k = c.in<T>(1);
    body.v = c.in<T>(2);
    body.y = c.out<T>(0);
    body.stats = c.out<float>(1);
    body.in_pieces = moves_in_pieces<T>(s, {body.q, body.k, body.v, body.y});
    for_blocks(s.samples * s.heads * body.query_tiles(), Body::room().bytes, body);
  }
};

}  // namespace

const KernelTable& flash_registers_rows() {
  static const KernelTable kRows = {
      {"fused_attention", "flash_registers", flash_registers_take,
       flash_registers_kernel<RegistersAttention>},
  };
  return kRows;
}

}  // namespace hetu::cuda
