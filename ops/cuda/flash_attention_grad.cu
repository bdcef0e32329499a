// The gradients of fused attention, in tiles, with recomputed weights. First one block per tile of
// queries computes dq, then one block per tile of keys computes dk and dv. So every sum has a
// single order.
// Source: Dao, Fu, Ermon, Rudra, Ré 2022, "FlashAttention", appendix B.
#include "ops/cuda/flash.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

/// The products that both gradient kernels need for a pair of tiles: queries with keys, and dy with
/// values.
template <class T>
struct FlashBackward : Flash<T> {
  using Flash<T>::Flash;
  float* totals = nullptr;  ///< per row: the sum of weights times their gradients

  template <class Block>
  HETU_HD void products(const Block& block, const T* q_tile, const T* dy_tile, const T* k_tile,
                        const T* v_tile, float* scores, float* of_weights) const {
    const FlashTile t = this->tile;
    const int wide = this->padded(), step = tile_step<T>(wide), to = tile_step<float>(t.keys);
    block.multiply(Tile<T>{q_tile, step, false}, Tile<T>{k_tile, step, true}, scores, to, t.queries,
                   t.keys, wide, false);
    block.multiply(Tile<T>{dy_tile, step, false}, Tile<T>{v_tile, step, true}, of_weights, to,
                   t.queries, t.keys, wide, false);
  }
};

template <class T>
struct FlashQueryGrad : FlashBackward<T> {
  using FlashBackward<T>::FlashBackward;
  const T* y = nullptr;
  T* dq = nullptr;

  struct Room {
    int q, dy, k, v, scores, of_weights, of_scores, dq, totals, kept, bytes;
  };
  HETU_HD static Room room(int columns, FlashTile t) {
    SharedRoom r;
    return {r.tile<T>(t.queries, columns),
            r.tile<T>(t.queries, columns),
            r.tile<T>(t.keys, columns),
            r.tile<T>(t.keys, columns),
            r.tile<float>(t.queries, t.keys),
            r.tile<float>(t.queries, t.keys),
            r.tile<T>(t.queries, t.keys),
            r.tile<float>(t.queries, columns),
            r.take(t.queries, sizeof(float)),
            Flash<T>::kept_room(r, t),
            r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const AttentionShape& shape = this->s;
    const FlashTile t = this->tile;
    const int wide = this->padded(), step = tile_step<T>(wide), sums = tile_step<float>(wide);
    const Room at = room(wide, t);
    auto* const q_tile = block.template shared<T>(at.q);
    auto* const dy_tile = block.template shared<T>(at.dy);
    auto* const k_tile = block.template shared<T>(at.k);
    auto* const v_tile = block.template shared<T>(at.v);
    auto* const scores = block.template shared<float>(at.scores);
    auto* const of_weights = block.template shared<float>(at.of_weights);
    auto* const of_scores = block.template shared<T>(at.of_scores);
    auto* const made = block.template shared<float>(at.dq);
    auto* const row_totals = block.template shared<float>(at.totals);
    auto* const kept = block.template shared<std::uint16_t>(at.kept);
    const std::int64_t tiles = this->query_tiles(), number = block.index();
    const ScoreRow first{number / tiles / shape.heads, number / tiles % shape.heads,
                         number % tiles * t.queries};
    const int rows = this->rows(first.query, shape.queries, t.queries);
    this->load(block, this->q + this->query(first), shape.width, rows, t.queries, q_tile);
    this->load(block, this->dy + this->query(first), shape.width, rows, t.queries, dy_tile);
    block.each(t.queries * wide, [=](int i) { made[i / wide * sums + i % wide] = 0; });
    add_up(block, first, rows, dy_tile, row_totals);
    const KeyRange seen = this->seen(first.query, rows);
    for (std::int64_t key = seen.begin; key < seen.end; key += t.keys) {
      const int keys = this->rows(key, seen.end, t.keys);
      this->load(block, this->k + this->kv(first, key), shape.kv_width, keys, t.keys, k_tile);
      this->load(block, this->v + this->kv(first, key), shape.kv_width, keys, t.keys, v_tile);
      this->products(block, q_tile, dy_tile, k_tile, v_tile, scores, of_weights);
      this->decide(block, first, key, kept);
      of_queries(block, first, rows, key, kept, scores, of_weights, row_totals, of_scores);
      block.multiply(Tile<T>{of_scores, tile_step<T>(t.keys), false}, Tile<T>{k_tile, step, false},
                     made, sums, t.queries, wide, t.keys, true);
    }
    store(block, first, rows, made, row_totals);
  }

 private:
  /// Computes for each row the dot product of dy and y, which equals the sum of its weights times
  /// their gradients.
  template <class Block>
  HETU_HD void add_up(const Block& block, const ScoreRow& first, int rows, const T* dy_tile,
                      float* row_totals) const {
    const T* const of_y = y + this->query(first);
    const int step = tile_step<T>(this->padded());
    block.each_row(
        this->tile.queries, static_cast<int>(this->s.columns), 0.0F,
        [=, this](int i, int j) {
          if (i >= rows) return 0.0F;
          return static_cast<float>(dy_tile[i * step + j]) *
                 static_cast<float>(of_y[i * this->s.width + j]);
        },
        [](float a, float b) { return a + b; }, [=](int i, float sum) { row_totals[i] = sum; });
  }

  template <class Block>
  HETU_HD void of_queries(const Block& block, const ScoreRow& first, int rows, std::int64_t key,
                          const std::uint16_t* kept, const float* scores, const float* of_weights,
                          const float* row_totals, T* of_scores) const {
    const int keys = this->tile.keys, step = tile_step<float>(keys), to_step = tile_step<T>(keys);
    const float* const of_rows = this->stats + 2 * this->row_of(first);
    block.each(this->tile.queries * keys, [=, this](int n) {
      const int i = n / keys, j = n % keys;
      const ScoreRow a = this->below(first, i);
      const float p =
          i < rows ? this->weight(of_rows + 2 * i, a, key + j, scores[i * step + j]) : 0.0F;
      float ds = 0;
      if (p != 0.0F)
        ds = p * (this->kept_factor(kept, i, j) * of_weights[i * step + j] - row_totals[i]) *
             static_cast<float>(this->s.scale);
      of_scores[i * to_step + j] = static_cast<T>(ds);
    });
  }

  template <class Block>
  HETU_HD void store(const Block& block, const ScoreRow& first, int rows, const float* made,
                     const float* row_totals) const {
    const int columns = static_cast<int>(this->s.columns), step = tile_step<float>(this->padded());
    block.each(rows * columns, [=, this](int i) {
      const int row = i / columns, column = i % columns;
      dq[this->query(this->below(first, row)) + column] = static_cast<T>(made[row * step + column]);
    });
    block.each(rows, [=, this](int i) {
      this->totals[this->row_of(this->below(first, i))] = row_totals[i];
    });
  }
};

/// The gradients of keys and values. Runs after FlashQueryGrad, whose totals it reads.
template <class T>
struct FlashKeyGrad : FlashBackward<T> {
  using FlashBackward<T>::FlashBackward;
  T *dk = nullptr, *dv = nullptr;

  struct Room {
    int k, v, q, dy, scores, of_weights, weights, of_scores, dk, dv, kept, bytes;
  };
  HETU_HD static Room room(int columns, FlashTile t) {
    SharedRoom r;
    return {r.tile<T>(t.keys, columns),       r.tile<T>(t.keys, columns),
            r.tile<T>(t.queries, columns),    r.tile<T>(t.queries, columns),
            r.tile<float>(t.queries, t.keys), r.tile<float>(t.queries, t.keys),
            r.tile<T>(t.queries, t.keys),     r.tile<T>(t.queries, t.keys),
            r.tile<float>(t.keys, columns),   r.tile<float>(t.keys, columns),
            Flash<T>::kept_room(r, t),        r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const AttentionShape& shape = this->s;
    const FlashTile t = this->tile;
    const int wide = this->padded(), step = tile_step<T>(wide), sums = tile_step<float>(wide);
    const Room at = room(wide, t);
    auto* const k_tile = block.template shared<T>(at.k);
    auto* const v_tile = block.template shared<T>(at.v);
    auto* const q_tile = block.template shared<T>(at.q);
    auto* const dy_tile = block.template shared<T>(at.dy);
    auto* const scores = block.template shared<float>(at.scores);
    auto* const of_weights = block.template shared<float>(at.of_weights);
    auto* const weights = block.template shared<T>(at.weights);
    auto* const of_scores = block.template shared<T>(at.of_scores);
    auto* const to_k = block.template shared<float>(at.dk);
    auto* const to_v = block.template shared<float>(at.dv);
    auto* const kept = block.template shared<std::uint16_t>(at.kept);
    const std::int64_t tiles = this->key_tiles(), number = block.index();
    const std::int64_t key = number % tiles * t.keys, kv_head = number / tiles % shape.kv_heads;
    const int keys = this->rows(key, shape.keys, t.keys), of_head = tile_step<T>(t.keys);
    ScoreRow first{number / tiles / shape.kv_heads, kv_head * shape.group, 0};
    const std::int64_t there = this->kv(first, key);
    this->load(block, this->k + there, shape.kv_width, keys, t.keys, k_tile);
    this->load(block, this->v + there, shape.kv_width, keys, t.keys, v_tile);
    block.each(t.keys * wide, [=](int i) {
      to_k[i / wide * sums + i % wide] = 0;
      to_v[i / wide * sums + i % wide] = 0;
    });
    for (; first.head < (kv_head + 1) * shape.group; ++first.head)
      for (first.query = 0; first.query < shape.queries; first.query += t.queries) {
        const int rows = this->rows(first.query, shape.queries, t.queries);
        const KeyRange seen = this->seen(first.query, rows);
        if (seen.begin >= key + keys || seen.end <= key) continue;
        this->load(block, this->q + this->query(first), shape.width, rows, t.queries, q_tile);
        this->load(block, this->dy + this->query(first), shape.width, rows, t.queries, dy_tile);
        this->products(block, q_tile, dy_tile, k_tile, v_tile, scores, of_weights);
        this->decide(block, first, key, kept);
        of_keys(block, first, rows, key, kept, scores, of_weights, weights, of_scores);
        block.multiply(Tile<T>{weights, of_head, true}, Tile<T>{dy_tile, step, false}, to_v, sums,
                       t.keys, wide, t.queries, true);
        block.multiply(Tile<T>{of_scores, of_head, true}, Tile<T>{q_tile, step, false}, to_k, sums,
                       t.keys, wide, t.queries, true);
      }
    const int columns = static_cast<int>(shape.columns);
    block.each(keys * columns, [=, this](int i) {
      const int row = i / columns, column = i % columns;
      const std::int64_t to = there + row * this->s.kv_width + column;
      dk[to] = static_cast<T>(to_k[row * sums + column]);
      dv[to] = static_cast<T>(to_v[row * sums + column]);
    });
  }

 private:
  template <class Block>
  HETU_HD void of_keys(const Block& block, const ScoreRow& first, int rows, std::int64_t key,
                       const std::uint16_t* decided, const float* scores, const float* of_weights,
                       T* weights, T* of_scores) const {
    const int keys = this->tile.keys, step = tile_step<float>(keys), to_step = tile_step<T>(keys);
    const std::int64_t row = this->row_of(first);
    const float *const of_rows = this->stats + 2 * row, *const row_totals = this->totals + row;
    block.each(this->tile.queries * keys, [=, this](int n) {
      const int i = n / keys, j = n % keys;
      const ScoreRow a = this->below(first, i);
      const float p =
          i < rows ? this->weight(of_rows + 2 * i, a, key + j, scores[i * step + j]) : 0.0F;
      float kept = 0, ds = 0;
      if (p != 0.0F) {
        const float keep = this->kept_factor(decided, i, j);
        kept = p * keep;
        ds = p * (keep * of_weights[i * step + j] - row_totals[i]) *
             static_cast<float>(this->s.scale);
      }
      weights[i * to_step + j] = static_cast<T>(kept);
      of_scores[i * to_step + j] = static_cast<T>(ds);
    });
  }
};

template <class T>
struct FlashAttentionGrad {
  AttentionShape s;
  AttentionMask mask;
  explicit FlashAttentionGrad(const KernelDesc& d) : s(d), mask(d, 6) {}
  std::int64_t scratch_bytes() const {
    return s.samples * s.heads * s.queries * std::int64_t{sizeof(float)};
  }
  void operator()(const KernelCall& c) const {
    const auto filled = [&](auto body) {
      body.q = c.in<T>(0);
      body.k = c.in<T>(1);
      body.v = c.in<T>(2);
      body.stats = const_cast<float*>(c.in<float>(3));  // only read
      body.dy = c.in<T>(4);
      body.totals = static_cast<float*>(c.scratch);
      body.in_pieces = moves_in_pieces(s, {body.q, body.k, body.v, body.dy});
      return body;
    };
    const Heads heads(s, AttentionRun(c, s));
    const MaskBias bias(mask, c, 6);
    auto of_q = filled(FlashQueryGrad<T>(heads, bias, tile_of<FlashQueryGrad<T>>(s)));
    of_q.y = c.in<T>(5);
    of_q.dq = c.out<T>(0);
    for_blocks(s.samples * s.heads * of_q.query_tiles(),
               FlashQueryGrad<T>::room(of_q.padded(), of_q.tile).bytes, of_q);
    auto of_k = filled(FlashKeyGrad<T>(heads, bias, tile_of<FlashKeyGrad<T>>(s)));
    of_k.dk = c.out<T>(1);
    of_k.dv = c.out<T>(2);
    for_blocks(s.samples * s.kv_heads * of_k.key_tiles(),
               FlashKeyGrad<T>::room(of_k.padded(), of_k.tile).bytes, of_k);
  }
};

}  // namespace

const KernelTable& flash_attention_grad_rows() {
  static const KernelTable kRows = {
      {"fused_attention_grad", "flash", flash_fits<FlashQueryGrad, FlashKeyGrad>,
       flash_kernel<FlashAttentionGrad>},
  };
  return kRows;
}

}  // namespace hetu::cuda
