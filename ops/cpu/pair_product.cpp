// Blocked products of bfloat16, as in product.cpp, with pairs as elements. A pair is two bfloat16
// numbers that are adjacent along the depth. Its size is four bytes, that of a float32 number, so
// panels can hold either.
//
//   float32 panel:  a[i][l]               one step of the depth per element
//   pair panel:     a[i][2l], a[i][2l+1]  two steps; dpbf16 adds both products to a float32 sum
//
// A is read in place unless it is transposed. The sums of a tile stay in the second-level cache
// until they are rounded.
#include "ops/cpu/pair_product.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cpu/few_rows.h"
#include "ops/cpu/pair_panels.h"
#include "ops/cpu/parts.h"
#include "ops/cpu/set_rounded.h"

namespace hetu::cpu {

using panels::Into;
using panels::kPanelColumns;
using panels::kPanelRows;
using panels::pack_panel;

namespace {

constexpr std::int64_t kSlab = 1 << 21;  // pairs of a slab, which stays in the last-level cache
constexpr std::int64_t kSlabDepth = 1 << 12;  // pairs of a slab along the depth
// Rows whose distance is a multiple of this conflict in the first-level cache.
constexpr std::int64_t kAliased = 1024;
// With at most this number of multiplications, one thread is faster than several.
constexpr std::int64_t kParallelWork = 1 << 18;
constexpr std::int64_t kFewColumns = 64, kFewSteps = 64;  // below these sizes, oneDNN is as fast

/// Packs pairs: out [pairs, Width]. A pair is two consecutive rows of x in the same column. Only
/// the first `width` columns are taken; zeros follow. Rows of x are `along` elements apart.
template <int Width>
void pack_rows(const BFloat16* x, std::int64_t along, std::int64_t width, std::int64_t pairs,
               float* out) {
  using Word = std::uint32_t __attribute__((may_alias));
  constexpr std::int64_t kAhead = 16;
  if (width < Width) std::fill_n(out, pairs * Width, 0.0f);
  for (std::int64_t l = 0; l < pairs; ++l, out += Width, x += 2 * along) {
    __builtin_prefetch(x + kAhead * along);
    __builtin_prefetch(x + (kAhead + 1) * along);
    const BFloat16 *low = x, *high = x + along;
    Word* const to = reinterpret_cast<Word*>(out);
    if (width == Width) {
#pragma omp simd
      for (int i = 0; i < Width; ++i) to[i] = low[i].bits | std::uint32_t{high[i].bits} << 16;
    } else {
      for (std::int64_t i = 0; i < width; ++i)
        to[i] = low[i].bits | std::uint32_t{high[i].bits} << 16;
    }
  }
}

}  // namespace

// A matrix viewed along its depth, in pairs. The two numbers of a pair are adjacent in memory, or
// in two consecutive rows.
struct PairProduct::Source {
  const BFloat16* data;
  std::int64_t across, along;  // elements from one to the next

  const float* pairs() const { return reinterpret_cast<const float*>(data); }
  template <int Width>
  void pack(std::int64_t first, std::int64_t width, std::int64_t pairs, float* out) const {
    const Source from{data + first * across, across, along};
    if (along == 1)
      pack_panel<Width>({from.pairs(), across / 2, 1}, width, pairs, out);
    else
      pack_rows<Width>(from.data, along, width, pairs, out);
  }
};

// The parts of C and of the depth (in pairs) that are packed at present.
struct PairProduct::Slab {
  std::int64_t row, rows, column, columns, depth;
  bool begins, ends;  // true for the first and for the last slab along the depth
  Source a, b;        // start of the slab in the caller's memory
  // If A is read in place, packed_a holds only an incomplete last panel.
  float *packed_a, *packed_b;
  float* partial;  // sums of a C that is rounded, if the depth has several slabs
  void* c;
  const float* bias;  // nullptr if there is none
  Epilogue<BFloat16> epilogue;
};

bool PairProduct::fits(const ProductShape& s, DType to) {
  if (!panels::has_pair_instruction() || s.batch != 1 || s.k % 2 != 0 || s.lower) return false;
  if (s.transpose_a && s.m * s.n < kPieces * 24 * kFewColumns) return false;  // too few tiles
  return !(s.adds && to != DType::Float32) && s.n >= kFewColumns && s.k >= kFewSteps;
}

PairProduct::PairProduct(const ProductShape& shape, DType to)
    : s_(shape), narrow_(to == DType::BFloat16), pairs_(shape.k / 2) {
  HETU_ASSERT(s_.batch == 1 && s_.k % 2 == 0 && !s_.lower && !(s_.adds && narrow_));
  step_ = even(pairs_, kMostStep, 4);
  depth_ = even(pairs_, kSlabDepth, step_);
  rows_ = even(s_.m, kSlab / depth_, kPanelRows);
  columns_ = even(s_.n, kSlab / depth_, kPanelColumns);
  tile_ = tile_of(rows_, columns_);
  in_place_ = !s_.transpose_a && pairs_ % kAliased != 0;
}

std::int64_t PairProduct::packed_rows() const { return in_place_ ? kPanelRows : rows_; }

std::int64_t PairProduct::scratch_bytes() const {
  const std::int64_t sums = narrow_ && depth_ < pairs_ ? s_.m * s_.n : 0;
  return ((packed_rows() + columns_) * up(depth_, 16) + sums) * std::int64_t{sizeof(float)};
}

void PairProduct::run(const BFloat16* a, const BFloat16* b, const float* bias, void* c,
                      void* scratch, const Epilogue<BFloat16>& epilogue) const {
  const std::int64_t ra = s_.transpose_a ? 1 : s_.k, la = s_.transpose_a ? s_.m : 1;
  const std::int64_t cb = s_.transpose_b ? s_.k : 1, lb = s_.transpose_b ? 1 : s_.n;
  float* const packed_a = static_cast<float*>(scratch);
  float* const packed_b = packed_a + packed_rows() * up(depth_, 16);
  float* const partial = packed_b + columns_ * up(depth_, 16);
#pragma omp parallel if (s_.m * s_.n * s_.k > kParallelWork)
  for (std::int64_t j = 0; j < s_.n; j += columns_)
    for (std::int64_t l = 0; l < pairs_; l += depth_)
      for (std::int64_t i = 0; i < s_.m; i += rows_) {
        const Slab slab = {.row = i,
                           .rows = std::min(rows_, s_.m - i),
                           .column = j,
                           .columns = std::min(columns_, s_.n - j),
                           .depth = std::min(depth_, pairs_ - l),
                           .begins = l == 0,
                           .ends = l + depth_ >= pairs_,
                           .a = {a + i * ra + 2 * l * la, ra, la},
                           .b = {b + j * cb + 2 * l * lb, cb, lb},
                           .packed_a = packed_a,
                           .packed_b = packed_b,
                           .partial = partial,
                           .c = c,
                           .bias = bias,
                           .epilogue = epilogue};
        pack(slab);
        const std::int64_t tiles =
            parts(slab.rows, tile_.rows) * parts(slab.columns, tile_.columns);
#pragma omp for schedule(dynamic, 1)
        for (std::int64_t tile = 0; tile < tiles; ++tile) compute_tile(slab, tile);
      }
}

// Called by all threads of the team; ends with a barrier. Panels of B are packed once, with the
// first slab of rows, and used for all slabs of rows.
void PairProduct::pack(const Slab& slab) const {
  const std::int64_t first = in_place_ ? slab.rows / kPanelRows : 0;
  const std::int64_t pa = parts(slab.rows, kPanelRows) - first;
  const std::int64_t pb = slab.row == 0 ? parts(slab.columns, kPanelColumns) : 0;
#pragma omp for schedule(static)
  for (std::int64_t p = 0; p < pa + pb; ++p) {
    if (p < pa) {
      const std::int64_t at = (first + p) * kPanelRows;
      slab.a.pack<kPanelRows>(at, std::min<std::int64_t>(kPanelRows, slab.rows - at), slab.depth,
                              slab.packed_a + p * kPanelRows * slab.depth);
    } else {
      const std::int64_t at = (p - pa) * kPanelColumns;
      slab.b.pack<kPanelColumns>(at, std::min<std::int64_t>(kPanelColumns, slab.columns - at),
                                 slab.depth, slab.packed_b + at * slab.depth);
    }
  }
}

void PairProduct::compute_tile(const Slab& slab, std::int64_t tile) const {
  alignas(64) float own[kTileRows * kTileColumns];
  const std::int64_t across = parts(slab.columns, tile_.columns);
  const std::int64_t top = tile / across * tile_.rows, left = tile % across * tile_.columns;
  const std::int64_t at = (slab.row + top) * s_.n + slab.column + left;
  float* sums = own;
  std::int64_t stride = tile_.columns;
  if (!narrow_ || depth_ < pairs_) {
    sums = (narrow_ ? slab.partial : static_cast<float*>(slab.c)) + at;
    stride = s_.n;
  }
  multiply_tile(slab, top, left, sums, stride);
  if (narrow_ && slab.ends) round_tile(slab, top, left, sums, stride);
}

void PairProduct::multiply_tile(const Slab& slab, std::int64_t top, std::int64_t left, float* sums,
                                std::int64_t stride) const {
  const std::int64_t bottom = std::min(slab.rows, top + tile_.rows);
  const std::int64_t right = std::min(slab.columns, left + tile_.columns);
  for (std::int64_t l = 0; l < slab.depth; l += step_) {
    const std::int64_t depth = std::min(step_, slab.depth - l);
    const bool adds = s_.adds || !slab.begins || l > 0;
    const float* bias = slab.ends && l + step_ >= slab.depth ? slab.bias : nullptr;
    for (std::int64_t j = left; j < right; j += kPanelColumns)
      for (std::int64_t i = top; i < bottom; i += kPanelRows) {
        const std::int64_t rows = std::min<std::int64_t>(kPanelRows, bottom - i);
        const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, right - j);
        const float* b = slab.packed_b + j * slab.depth + l * kPanelColumns;
        const Into into = {sums + (i - top) * stride + j - left, stride, adds,
                           bias == nullptr ? nullptr : bias + slab.column + j};
        if (in_place_ && rows == kPanelRows) {
          const float* a = slab.a.pairs() + i * (slab.a.across / 2) + l;
          panels::multiply_pairs({depth, a, slab.a.across / 2, b}, into, rows, columns, true);
        } else {
          const float* a = slab.packed_a + (in_place_ ? 0 : i * slab.depth) + l * kPanelRows;
          panels::multiply_pairs({depth, a, kPanelRows, b}, into, rows, columns, false);
        }
      }
  }
}

// Rounds a tile to C and applies `epilogue`. Called by the thread that has computed the tile.
void PairProduct::round_tile(const Slab& slab, std::int64_t top, std::int64_t left,
                             const float* sums, std::int64_t stride) const {
  const std::int64_t columns = std::min(tile_.columns, slab.columns - left);
  for (std::int64_t i = top; i < std::min(slab.rows, top + tile_.rows); ++i, sums += stride) {
    const std::int64_t at = (slab.row + i) * s_.n + slab.column + left;
    BFloat16* const c = static_cast<BFloat16*>(slab.c);
#pragma omp simd
    for (std::int64_t j = 0; j < columns; ++j) set_rounded(c[at + j], sums[j]);
    if (slab.epilogue.apply != nullptr) slab.epilogue.run(c, at, columns);
  }
}

}  // namespace hetu::cpu
