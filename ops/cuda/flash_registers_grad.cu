// The gradients of flash_registers.cu, with recomputed weights. First one block per tile of queries
// computes dq, then one block per tile of keys computes dk and dv. In the second kernel the rows of
// scores are keys, so that the weights in registers are left factors of the products. Every sum has
// a single order.
// Source: Dao 2023, "FlashAttention-2", section 3.
#include <block.h>

#include "ops/cuda/flash_registers.h"
#include "ops/cuda/packs.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

/// The common part of both kernels. Dropout decisions are made once and stored: a word per thread
/// for each pair of tiles, with a bit per element.
template <class T, int Wide>
struct RegistersGrad : FlashRegisters<T, Wide> {
  using FlashRegisters<T, Wide>::FlashRegisters;
  float* totals = nullptr;  ///< per row: the sum of weights times their gradients
  std::uint32_t* kept_bits = nullptr;

  HETU_HD std::uint32_t* kept_of(const ScoreRow& first, std::int64_t key) const {
    const std::int64_t of_queries =
        (first.sample * this->s.heads + first.head) * this->query_tiles() +
        first.query / this->kSide;
    return kept_bits + (of_queries * this->key_tiles() + key / this->kSide) * this->kThreads;
  }
};

template <class T, int Wide>
struct RegistersQueryGrad : RegistersGrad<T, Wide> {
  using Base = RegistersGrad<T, Wide>;
  using Base::Base;
  using Base::kSide;
  using Base::kStep;
  using Base::kThreads;
  using Base::s;
  using typename Base::Scores;
  using typename Base::Turns;
  const T* y = nullptr;
  T* dq = nullptr;

  struct Room {
    int q, dy;
    Turns k, v, padding;
    int bytes;
  };
  HETU_HD static constexpr Room room() {
    SharedRoom r;
    return {r.tile<T>(kSide, Wide),
            r.tile<T>(kSide, Wide),
            Base::tiles_of_turns(r),
            Base::tiles_of_turns(r),
            {r.take(kSide, 4), r.take(kSide, 4)},
            r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    constexpr Room at = room();
    const std::int64_t of_head = this->query_tiles(), number = block.index();
    const ScoreRow first{number / of_head / s.heads, number / of_head % s.heads,
                         number % of_head * kSide};
    const int rows = this->rows(first.query, s.queries, kSide);
    const KeyRange seen = this->seen(first.query, rows);
    const std::int64_t begin = seen.begin / kSide * kSide;  // same tiles as RegistersKeyGrad
    const int tiles = static_cast<int>((seen.end - begin + kSide - 1) / kSide);
    const PhiloxStream stream = this->run.moment.stream(s.name_hash, first.sample);
    auto* const q_tile = block.template shared<T>(at.q);
    this->bring(block, this->q + this->query(first), s.width, rows, q_tile);
    this->bring(block, this->dy + this->query(first), s.width, rows,
                block.template shared<T>(at.dy));
    if (tiles > 0) bring_keys(block, first, begin, seen.end, false);
    RowValues top, inverse, total;
    row_stats(first, rows, top, inverse);
    add_up(first, rows, total);
    Sums<Wide> made;
    made.fill(0);
    typename Base::Decided decided;
    block.sync();
    for (int turn = 0; turn < tiles; ++turn) {
      const std::int64_t key = begin + turn * kSide;
      const bool odd = turn % 2 != 0;
      const auto bring_next = [&] {
        if (turn + 1 < tiles) bring_keys(block, first, key + kSide, seen.end, !odd);
      };
      Base::take_turn(block, bring_next, [&] {
        this->decide(decided, stream, first, key);
        if (this->run.drops) {
          std::uint32_t* const to = this->kept_of(first, key);
          for_threads([&](int thread) { to[thread] = decided.now.of(thread); });
        }
        Scores scores, of_weights;
        products(block, first, rows, key, this->rows(key, seen.end, kSide), odd, scores,
                 of_weights);
        const auto scale = static_cast<float>(s.scale);
        scores.each([&](const Position& p, float& x) {
          const float grad =
              this->is_kept(decided.now, p) ? of_weights[p] * this->kept_scale() : 0.0F;
          x = Base::power(x - top[p]) * inverse[p] * (grad - total[p]) * scale;
        });
        Factor<T, kSide, true> of_scores(scores);
        add_product<false>(made, of_scores, block.template shared<T>(at.k[odd]), kStep);
      });
    }
    total.each([&](const Position& p, float& x) {
      if (p.column == 0 && p.row < rows) this->totals[this->row_of(first) + p.row] = x;
    });
    this->put(block, made, q_tile, dq + this->query(first), s.width, rows);
  }

 private:
  template <class Block>
  HETU_HD void bring_keys(const Block& block, const ScoreRow& first, std::int64_t key,
                          std::int64_t end, bool odd) const {
    constexpr Room at = room();
    const int keys = this->rows(key, end, kSide);
    const std::int64_t from = this->kv(first, key);
    this->bring(block, this->k + from, s.kv_width, keys, block.template shared<T>(at.k[odd]));
    this->bring(block, this->v + from, s.kv_width, keys, block.template shared<T>(at.v[odd]));
    this->bring_padding(block, first, key, keys,
                        block.template shared<std::int32_t>(at.padding[odd]));
  }

  /// Loads what the forward pass stored for the rows; missing rows get 0.
  HETU_HD void row_stats(const ScoreRow& first, int rows, RowValues& top,
                         RowValues& inverse) const {
    const float* const of_rows = this->stats + 2 * this->row_of(first);
    top.each([&](const Position& p, float& x) {
      x = p.row < rows ? of_rows[2 * p.row] : 0.0F;
      inverse[p] = p.row < rows ? of_rows[2 * p.row + 1] : 0.0F;
    });
  }

  template <class Block>
  HETU_HD void products(const Block& block, const ScoreRow& first, int rows, std::int64_t key,
                        int keys, bool odd, Scores& scores, Scores& of_weights) const {
    constexpr Room at = room();
    scores.fill(0);
    Factor<T, Wide> queries(block.template shared<T>(at.q), kStep);
    add_product<true>(scores, queries, block.template shared<T>(at.k[odd]), kStep);
    this->template score<false>(scores, first, rows, key, keys,
                                block.template shared<std::int32_t>(at.padding[odd]));
    of_weights.fill(0);
    Factor<T, Wide> grads(block.template shared<T>(at.dy), kStep);
    add_product<true>(of_weights, grads, block.template shared<T>(at.v[odd]), kStep);
  }

  /// Computes for each row the dot product of dy and y, which equals the sum of its weights times
  /// their gradients. Each lane adds a quarter of the columns.
  HETU_HD void add_up(const ScoreRow& first, int rows, RowValues& total) const {
    constexpr int kOf = 16 / sizeof(T), kLanes = 4;
    const int columns = static_cast<int>(s.columns);
    const T *const of_y = y + this->query(first), *const of_dy = this->dy + this->query(first);
    total.each([&](const Position& p, float& sum) {
      sum = 0;
      unrolled<Wide / (kLanes * kOf)>([&](auto n) {
        const int column = (n * kLanes + p.thread % kLanes) * kOf;
        if (p.row >= rows || column >= columns) return;
        const std::int64_t at = p.row * s.width + column;
        const auto piece = [&](const T* from, float(&x)[kOf]) {
          if (this->in_pieces) {
            Raw<T, kOf> raw;
            load_raw(from + at, raw);
            widen(raw, x);
          } else {
            for (int i = 0; i < kOf; ++i)
              x[i] = column + i < columns ? static_cast<float>(from[at + i]) : 0.0F;
          }
        };
        float made[kOf], grad[kOf];
        piece(of_y, made);
        piece(of_dy, grad);
        for (int i = 0; i < kOf; ++i) sum += made[i] * grad[i];
      });
    });
    total.agree([](float a, float b) { return a + b; });
  }
};

/// The gradients of keys and values. Runs after RegistersQueryGrad, whose totals and dropout
/// decisions it reads. Rows of scores are keys.
template <class T, int Wide>
struct RegistersKeyGrad : RegistersGrad<T, Wide> {
  using Base = RegistersGrad<T, Wide>;
  using Base::Base;
  using Base::kSide;
  using Base::kStep;
  using Base::kThreads;
  using Base::s;
  using typename Base::Kept;
  using typename Base::Scores;
  using typename Base::Turns;
  T *dk = nullptr, *dv = nullptr;

  struct Room {
    int k, v, padding;
    Turns q, dy, stats, totals, kept;
    int bytes;
  };
  HETU_HD static constexpr Room room() {
    SharedRoom r;
    return {r.tile<T>(kSide, Wide),
            r.tile<T>(kSide, Wide),
            r.take(kSide, 4),
            Base::tiles_of_turns(r),
            Base::tiles_of_turns(r),
            {r.take(2 * kSide, 4), r.take(2 * kSide, 4)},
            {r.take(kSide, 4), r.take(kSide, 4)},
            {r.take(kThreads, 4), r.take(kThreads, 4)},
            r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    constexpr Room at = room();
    const std::int64_t of_head = this->key_tiles(), number = block.index();
    const std::int64_t key = number % of_head * kSide, kv_head = number / of_head % s.kv_heads;
    const int keys = this->rows(key, s.keys, kSide);
    ScoreRow now{number / of_head / s.kv_heads, kv_head * s.group, 0};
    const std::int64_t there = this->kv(now, key), end = now.head + s.group;
    auto* const k_tile = block.template shared<T>(at.k);
    auto* const v_tile = block.template shared<T>(at.v);
    this->bring(block, this->k + there, s.kv_width, keys, k_tile);
    this->bring(block, this->v + there, s.kv_width, keys, v_tile);
    this->bring_padding(block, now, key, keys, block.template shared<std::int32_t>(at.padding));
    bool is = seek(now, end, key, keys), odd = false;
    if (is) bring_queries(block, now, key, odd);
    Sums<Wide> to_k, to_v;
    to_k.fill(0);
    to_v.fill(0);
    block.sync();
    while (is) {
      ScoreRow next = now;
      next.query += kSide;
      is = seek(next, end, key, keys);
      const auto bring_next = [&] {
        if (is) bring_queries(block, next, key, !odd);
      };
      Base::take_turn(block, bring_next,
                      [&] { add_queries(block, now, key, keys, odd, to_k, to_v); });
      now = next;
      odd = !odd;
    }
    to_v.each([&](const Position&, float& x) { x *= this->kept_scale(); });
    this->put(block, to_k, k_tile, dk + there, s.kv_width, keys);
    this->put(block, to_v, v_tile, dv + there, s.kv_width, keys);
  }

 private:
  /// Advances `a` to the next tile of queries in which a query sees one of the keys. Returns false
  /// if there is none.
  HETU_HD bool seek(ScoreRow& a, std::int64_t end, std::int64_t key, int keys) const {
    for (; a.head < end; ++a.head, a.query = 0)
      for (; a.query < s.queries; a.query += kSide) {
        const KeyRange seen = this->seen(a.query, this->rows(a.query, s.queries, kSide));
        if (seen.begin < key + keys && seen.end > key) return true;
      }
    return false;
  }

  template <class Block>
  HETU_HD void bring_queries(const Block& block, const ScoreRow& first, std::int64_t key,
                             bool odd) const {
    constexpr Room at = room();
    const int rows = this->rows(first.query, s.queries, kSide);
    const std::int64_t from = this->query(first), row = this->row_of(first);
    this->bring(block, this->q + from, s.width, rows, block.template shared<T>(at.q[odd]));
    this->bring(block, this->dy + from, s.width, rows, block.template shared<T>(at.dy[odd]));
    const float *const stats_of = this->stats + 2 * row, *const totals_of = this->totals + row;
    auto* const to_stats = block.template shared<float>(at.stats[odd]);
    auto* const to_totals = block.template shared<float>(at.totals[odd]);
    block.template spread<2 * kSide, kThreads>([=](int i) {
      const bool has = i < 2 * rows;
      bring_word(has ? stats_of + i : stats_of, to_stats + i, has);
      if (i < kSide) bring_word(i < rows ? totals_of + i : totals_of, to_totals + i, i < rows);
    });
    if (!this->run.drops) return;
    const std::uint32_t* const kept_of = this->kept_of(first, key);
    auto* const to_kept = block.template shared<std::uint32_t>(at.kept[odd]);
    block.template spread<kThreads, kThreads>(
        [=](int i) { bring_word(kept_of + i, to_kept + i, true); });
  }

  /// Reads the decisions of RegistersQueryGrad, whose rows are queries, and transposes them for
  /// this kernel, whose rows are keys. Eight threads of the other layout each hold four of this
  /// thread's bits: two keys that are 8 apart, for each of two queries that are 8 apart.
  HETU_HD void read_kept(const std::uint32_t* words, Kept& kept) const {
    for_threads([&](int thread) {
      const int warp = thread / kWarp, lane = thread % kWarp;
      const int from = warp % 2 * 16 + warp / 2 * 2 + lane / 4 % 2;
      std::uint32_t word = 0;
      unrolled<8>([&](auto one) {
        constexpr int of_queries = one / 2, side = one % 2;
        const int other = of_queries * kWarp + (lane % 4 * 2 + side) * 4 + lane / 8;
        const std::uint32_t four = words[other] >> from & 0x1111u;
        word |= four << (of_queries % 2 * 16 + of_queries / 2 * 2 + side);
      });
      // Rows 8 apart are 8 bits apart in the source and 4 bits apart here; for columns it is the
      // reverse.
      word = (word & 0xf00ff00fu) | (word & 0x00f000f0u) << 4 | (word & 0x0f000f00u) >> 4;
      kept.of(thread) = this->run.drops ? word : ~0u;
    });
  }

  template <class Block>
  HETU_HD void add_queries(const Block& block, const ScoreRow& first, std::int64_t key, int keys,
                           bool odd, Sums<Wide>& to_k, Sums<Wide>& to_v) const {
    constexpr Room at = room();
    const auto* const q_tile = block.template shared<T>(at.q[odd]);
    const auto* const dy_tile = block.template shared<T>(at.dy[odd]);
    const auto* const of_rows = block.template shared<float>(at.stats[odd]);
    const auto* const sums = block.template shared<float>(at.totals[odd]);
    const int rows = this->rows(first.query, s.queries, kSide);
    Scores weights, of_weights;
    weights.fill(0);
    Factor<T, Wide> keys_there(block.template shared<T>(at.k), kStep);
    add_product<true>(weights, keys_there, q_tile, kStep);
    this->template score<true>(weights, first, rows, key, keys,
                               block.template shared<std::int32_t>(at.padding));
    of_weights.fill(0);
    Factor<T, Wide> values(block.template shared<T>(at.v), kStep);
    add_product<true>(of_weights, values, dy_tile, kStep);
    Kept kept;
    read_kept(block.template shared<std::uint32_t>(at.kept[odd]), kept);
    const float scale = static_cast<float>(s.scale), of_kept = this->kept_scale();
    weights.each([&](const Position& p, float& x) {
      float& grad = of_weights[p];
      const bool is = this->is_kept(kept, p);
      x = Base::power(x - of_rows[2 * p.column]) * of_rows[2 * p.column + 1];
      grad = x * ((is ? grad * of_kept : 0.0F) - sums[p.column]) * scale;
      if (!is) x = 0;
    });
    Factor<T, kSide, true> left(weights);
    add_product<false>(to_v, left, dy_tile, kStep);
    Factor<T, kSide, true> of_scores(of_weights);
    add_product<false>(to_k, of_scores, q_tile, kStep);
  }
};

template <class T, int Wide>
struct RegistersAttentionGrad {
  AttentionShape s;
  AttentionMask mask;
  explicit RegistersAttentionGrad(const KernelDesc& d) : s(d), mask(d, 6) {}
  /// Returns the words of the dropout decisions: a bit per pair of query and key, in whole tiles.
  std::int64_t kept_words() const {
    using Body = RegistersQueryGrad<T, Wide>;
    const auto tiles = [](std::int64_t n) { return (n + Body::kSide - 1) / Body::kSide; };
    if (s.rate.threshold == 0) return 0;
    return s.samples * s.heads * tiles(s.queries) * tiles(s.keys) * Body::kThreads;
  }
  std::int64_t rows() const { return s.samples * s.heads * s.queries; }
  std::int64_t scratch_bytes() const {
    return (rows() + kept_words()) * std::int64_t{sizeof(float)};
  }
  void operator()(const KernelCall& c) const {
    const auto filled = [&]<class Body>(Body body) {
      body.q = c.in<T>(0);
      body.k = c.in<T>(1);
      body.v = c.in<T>(2);
      body.stats = const_cast<float*>(c.in<float>(3));  // only read
      body.dy = c.in<T>(4);
      body.totals = static_cast<float*>(c.scratch);
      body.kept_bits = static_cast<std::uint32_t*>(c.scratch) + rows();
      body.in_pieces = moves_in_pieces<T>(
          s, {body.q, body.k, body.v, body.dy, c.in<T>(5), c.out<T>(0), c.out<T>(1), c.out<T>(2)});
      return body;
    };
    const Heads heads(s, AttentionRun(c, s));
    const MaskBias bias(mask, c, 6);
    auto of_q = filled(RegistersQueryGrad<T, Wide>(heads, bias));
    of_q.y = c.in<T>(5);
    of_q.dq = c.out<T>(0);
    for_blocks(s.samples * s.heads * of_q.query_tiles(), of_q.room().bytes, of_q);
    auto of_k = filled(RegistersKeyGrad<T, Wide>(heads, bias));
    of_k.dk = c.out<T>(1);
    of_k.dv = c.out<T>(2);
    for_blocks(s.samples * s.kv_heads * of_k.key_tiles(), of_k.room().bytes, of_k);
  }
};

}  // namespace

const KernelTable& flash_registers_grad_rows() {
  static const KernelTable kRows = {
      {"fused_attention_grad", "flash_registers", flash_registers_take,
       flash_registers_kernel<RegistersAttentionGrad>},
  };
  return kRows;
}

}  // namespace hetu::cuda
