// Fused attention in tiles of queries and keys (flash.h). Scores and weights stay in shared memory
// and are never written to the GPU's memory. Products of two-byte floats run on matrix units.
// Dropout decisions equal those of the CPU. Used for heads with more columns than
// flash_registers.cu supports.
// Source: Dao, Fu, Ermon, Rudra, Ré 2022, "FlashAttention", section 3.1.
#include "ops/cuda/flash.h"
#include "ops/cuda/tables.h"

namespace hetu::cuda {
namespace {

template <class T>
struct FlashForward : Flash<T> {
  using Flash<T>::Flash;
  T* y = nullptr;

  struct Room {
    int q, kv, scores, weights, y, top, sum, factor, kept, bytes;
  };
  HETU_HD static Room room(int columns, FlashTile t) {
    SharedRoom r;
    return {r.tile<T>(t.queries, columns),     r.tile<T>(t.keys, columns),
            r.tile<float>(t.queries, t.keys),  r.tile<T>(t.queries, t.keys),
            r.tile<float>(t.queries, columns), r.take(t.queries, sizeof(float)),
            r.take(t.queries, sizeof(float)),  r.take(t.queries, sizeof(float)),
            Flash<T>::kept_room(r, t),         r.bytes()};
  }

  template <class Block>
  HETU_HD void operator()(const Block& block) const {
    const AttentionShape& shape = this->s;
    const FlashTile t = this->tile;
    const int wide = this->padded(), step = tile_step<T>(wide), sums = tile_step<float>(wide);
    const Room at = room(wide, t);
    auto* const q_tile = block.template shared<T>(at.q);
    auto* const kv_tile = block.template shared<T>(at.kv);
    auto* const weights = block.template shared<T>(at.weights);
    auto* const scores = block.template shared<float>(at.scores);
    auto* const made = block.template shared<float>(at.y);
    auto* const top = block.template shared<float>(at.top);
    auto* const sum = block.template shared<float>(at.sum);
    auto* const factor = block.template shared<float>(at.factor);
    auto* const kept = block.template shared<std::uint16_t>(at.kept);
    const std::int64_t tiles = this->query_tiles(), number = block.index();
    const ScoreRow first{number / tiles / shape.heads, number / tiles % shape.heads,
                         number % tiles * t.queries};
    const int rows = this->rows(first.query, shape.queries, t.queries);

    this->load(block, this->q + this->query(first), shape.width, rows, t.queries, q_tile);
    block.each(t.queries * wide, [=](int i) { made[i / wide * sums + i % wide] = 0; });
    block.each(t.queries, [=](int i) {
      top[i] = -HUGE_VALF;
      sum[i] = 0;
    });
    const KeyRange seen = this->seen(first.query, rows);
    for (std::int64_t key = seen.begin; key < seen.end; key += t.keys) {
      const int keys = this->rows(key, seen.end, t.keys);
      this->load(block, this->k + this->kv(first, key), shape.kv_width, keys, t.keys, kv_tile);
      block.multiply(Tile<T>{q_tile, step, false}, Tile<T>{kv_tile, step, true}, scores,
                     tile_step<float>(t.keys), t.queries, t.keys, wide, false);
      this->decide(block, first, key, kept);
      soften(block, first, rows, key, kept, scores, weights, top, sum, factor);
      block.each(t.queries * wide,
                 [=](int i) { made[i / wide * sums + i % wide] *= factor[i / wide]; });
      this->load(block, this->v + this->kv(first, key), shape.kv_width, keys, t.keys, kv_tile);
      block.multiply(Tile<T>{weights, tile_step<T>(t.keys), false}, Tile<T>{kv_tile, step, false},
                     made, sums, t.queries, wide, t.keys, true);
    }
    store(block, first, rows, made, top, sum);
  }

 private:
  /// Turns scores into exponentials relative to the highest score so far. `factor` gets the factor
  /// by which earlier sums must be multiplied.
  template <class Block>
  HETU_HD void soften(const Block& block, const ScoreRow& first, int rows, std::int64_t key,
                      const std::uint16_t* kept, float* scores, T* weights, float* top, float* sum,
                      float* factor) const {
    const FlashTile t = this->tile;
    const int step = tile_step<float>(t.keys), to_step = tile_step<T>(t.keys);
    block.each_row(
        t.queries, t.keys, -HUGE_VALF,
        [=, this](int i, int j) {
          const ScoreRow a = this->below(first, i);
          float& score = scores[i * step + j];
          score = i < rows && this->sees(a, key + j) ? this->score(a, key + j, score) : -HUGE_VALF;
          return score;
        },
        [](float a, float b) { return a > b ? a : b; },
        [=](int i, float highest) {
          const float before = top[i];
          if (highest > before) top[i] = highest;
          factor[i] = highest > before ? std::exp(before - highest) : 1.0F;
        });
    block.each_row(
        t.queries, t.keys, 0.0F,
        [=, this](int i, int j) {
          const float score = scores[i * step + j];
          const float power = score == -HUGE_VALF ? 0.0F : std::exp(score - top[i]);
          weights[i * to_step + j] = static_cast<T>(power * this->kept_factor(kept, i, j));
          return power;
        },
        [](float a, float b) { return a + b; },
        [=](int i, float of_tile) { sum[i] = sum[i] * factor[i] + of_tile; });
  }

  template <class Block>
  HETU_HD void store(const Block& block, const ScoreRow& first, int rows, const float* made,
                     const float* top, const float* sum) const {
    const int columns = static_cast<int>(this->s.columns), step = tile_step<float>(this->padded());
    block.each(rows * columns, [=, this](int i) {
      const int row = i / columns, column = i % columns;
      // 0 if the query sees no key. A row with a NaN has the sum NaN, which is not 0.
      const float value = sum[row] != 0 ? made[row * step + column] / sum[row] : 0.0F;
      y[this->query(this->below(first, row)) + column] = static_cast<T>(value);
    });
    block.each(rows, [=, this](int i) {
      float* const kept = this->stats + 2 * this->row_of(this->below(first, i));
      kept[0] = sum[i] != 0 ? top[i] : 0.0F;
      kept[1] = sum[i] != 0 ? 1 / sum[i] : 0.0F;
    });
  }
};

template <class T>
struct FlashAttention {
  AttentionShape s;
  AttentionMask mask;
  explicit FlashAttention(const KernelDesc& d) : s(d), mask(d) {}
  void operator()(const KernelCall& c) const {
    const FlashTile tile = tile_of<FlashForward<T>>(s);
    FlashForward<T> body(Heads(s, AttentionRun(c, s)), MaskBias(mask, c, 3), tile);
    body.q = c.in<T>(0);
    body.k = c.in<T>(1);
    body.v = c.in<T>(2);
    body.y = c.out<T>(0);
    body.stats = c.out<float>(1);
    body.in_pieces = moves_in_pieces(s, {body.q, body.k, body.v});
    for_blocks(s.samples * s.heads * body.query_tiles(),
               FlashForward<T>::room(body.padded(), tile).bytes, body);
  }
};

}  // namespace

const KernelTable& flash_attention_rows() {
  static const KernelTable kRows = {
      {"fused_attention", "flash", flash_fits<FlashForward>, flash_kernel<FlashAttention>},
  };
  return kRows;
}

}  // namespace hetu::cuda
