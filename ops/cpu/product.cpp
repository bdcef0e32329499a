// Blocked matrix products on several threads.
//
// A slab is a part of C's rows and columns and a part of the depth, whose operands stay in the
// last-level cache. All threads pack the slab's B into panels, in the order in which the
// micro-kernel reads them (product_panels.h). They pack A likewise, unless its rows can be read in
// place. Then threads take tiles of C. A tile's sums over `step_` steps of the depth are added to
// C, step by step. So the order of additions follows from the shape.
//
//   for each slab of columns j, depth l, rows i:      run_one
//     pack the panels of A and B                      pack
//     for each tile of the slab (any thread):         compute
//       for each step of the depth, panel of B, panel of A:
//         micro-kernel                                compute_tile
//
// A product with few tiles, such as the gradient of a small weight, is also divided along the
// depth. Each chunk of the depth has sums of its own, which add_chunks adds in order.
//
// Sources: Goto and van de Geijn 2008; Van Zee and van de Geijn 2015 (BLIS).
#include "ops/cpu/product.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/cpu/parts.h"
#include "ops/cpu/product_panels.h"

namespace hetu::cpu {

using panels::Into;
using panels::kPanelColumns;
using panels::kPanelRows;
using panels::multiply;
using panels::pack_panel;
using panels::RowsApart;
using panels::RowsTogether;
using panels::Strided;

namespace {

constexpr std::int64_t kDepth = kMostStep;  // panels of this depth stay in the first-level cache
constexpr std::int64_t kSlabElements = 1 << 20;  // slabs stay in the last-level cache
// Packed by one thread, in its second-level cache.
constexpr std::int64_t kOwnElements = kDepth * kTileColumns;
// Rows whose distance is a multiple of this conflict in the first-level cache.
constexpr std::int64_t kAliased = 1024;
constexpr std::int64_t kFewColumns = 384;  // too few to pay for packing a transposed A
// With at most this number of multiplications, one thread is faster than several.
constexpr std::int64_t kParallelWork = 1 << 17;

}  // namespace

Tile tile_of(std::int64_t rows, std::int64_t columns) {
  Tile tile = {even(rows, kTileRows, kPanelRows), even(columns, kTileColumns, kPanelColumns)};
  const auto tiles = [&] { return parts(rows, tile.rows) * parts(columns, tile.columns); };
  while (tiles() < kPieces && tile.columns > 64) tile.columns = up(tile.columns / 2, kPanelColumns);
  while (tiles() < kPieces && tile.rows > 24) tile.rows = up(tile.rows / 2, kPanelRows);
  return tile;
}

// The operands of one matrix of the batch. B is in the caller's memory, or packed by pack_b().
struct Product::Operands {
  const float *a, *b, *packed_b, *bias;
};

// The parts of C and of the depth that are packed at present.
struct Product::Slab {
  std::int64_t row, rows, column, columns, depth;
  /// The first chunk of the slab. If the depth isn't divided, it is a single chunk.
  std::int64_t chunk;
  bool adds;     // C already holds the sums of the depth before the first chunk
  Strided a, b;  // start of the slab in the caller's memory
  /// packed_a: only an incomplete last panel if A is read in place. packs_b: destination of B's
  /// panels, or nullptr if all of B is packed already.
  float *packed_a, *packs_b;
  const float* packed_b;     // the panels of B
  std::int64_t panel_depth;  // steps of the depth in a panel of B
  const float* bias;         // added with the last sum of a tile, unless nullptr
  Epilogue<float> epilogue;  // applied to a tile with its last sum
};

Product::Product(const ProductShape& shape) : s_(shape) {
  step_ = even(s_.k, kDepth, 4);
  rows_ = even(s_.m, std::max<std::int64_t>(1536, kSlabElements / step_), kPanelRows);
  columns_ = even(s_.n, 3072, kPanelColumns);
  const std::int64_t steps =
      std::max<std::int64_t>(1, kSlabElements / std::max(rows_, columns_) / step_);
  depth_ = std::min(parts(s_.k, step_), steps) * step_;
  tile_ = tile_of(rows_, columns_);
  const std::int64_t tiles = parts(rows_, tile_.rows) * parts(columns_, tile_.columns);
  const std::int64_t most = s_.transpose_a ? parts(kPieces, tiles) : 1;
  chunk_ = up(parts(depth_, std::clamp<std::int64_t>(depth_ / 128, 1, most)), 4);
  chunks_ = parts(depth_, chunk_);
  HETU_ASSERT(chunks_ == 1 || (rows_ >= s_.m && columns_ >= s_.n));
  HETU_ASSERT(s_.transpose_a || !(s_.adds || s_.lower));
  in_place_ = s_.transpose_a ? s_.m % kAliased != 0 && s_.n <= kFewColumns : s_.k % kAliased != 0;
}

// Returns the size of the slabs. A single thread packs an amount that stays in its second-level
// cache until it is read. A team packs the largest slabs at once, because its threads have to meet
// at every slab. Slabs end at steps, or at chunks if there are any, so their size changes no
// result.
Product::Slabs Product::slabs() const {
  if (omp_get_max_threads() > 1) return {rows_, columns_, depth_};
  const auto most = [](std::int64_t room, std::int64_t unit, std::int64_t all) {
    return std::min(std::max<std::int64_t>(1, room / unit) * unit, all);
  };
  const std::int64_t both = kOwnElements / (rows_ + columns_);
  if (chunks_ > 1) return {rows_, columns_, most(both, chunk_, depth_)};
  if (s_.transpose_a) {
    const std::int64_t depth = most(both, step_, depth_);
    return {most(kOwnElements / depth - columns_, tile_.rows, rows_), columns_, depth};
  }
  const std::int64_t columns = most(kOwnElements / step_, tile_.columns, columns_);
  return {rows_, columns, most(kOwnElements / columns, step_, depth_)};
}

std::int64_t Product::packed_rows() const { return in_place_ ? kPanelRows : rows_; }

std::int64_t Product::scratch_bytes() const {
  if (has_few_rows()) return 0;
  const std::int64_t sums = (chunks_ - 1) * rows_ * columns_;
  return ((packed_rows() + columns_) * up(depth_, 16) + sums) * std::int64_t{sizeof(float)};
}

void Product::run(const float* a, const float* b, const float* bias, float* c, void* scratch,
                  const Epilogue<float>& epilogue) const {
  HETU_ASSERT(epilogue.apply == nullptr || (s_.batch == 1 && !s_.transpose_a));
  for (std::int64_t i = 0; i < s_.batch; ++i) {
    const float *ai = a + i * s_.m * s_.k, *bi = b + i * s_.k * s_.n;
    float* const ci = c + i * s_.m * s_.n;
    if (!has_few_rows()) {
      run_one({ai, bi, nullptr, bias}, ci, static_cast<float*>(scratch), epilogue);
      continue;
    }
    multiply_few_rows(s_, step_, ai, bi, bias, ci);
    if (epilogue.apply != nullptr) epilogue.run(ci, 0, s_.m * s_.n);
  }
}

std::int64_t Product::packed_b_bytes() const {
  if (has_few_rows() || s_.batch > 1) return 0;
  return up(s_.n, kPanelColumns) * s_.k * std::int64_t{sizeof(float)};
}

void Product::pack_b(const float* b, float* packed) const {
  const std::int64_t across = s_.transpose_b ? s_.k : 1, along = s_.transpose_b ? 1 : s_.n;
#pragma omp parallel for schedule(static)
  for (std::int64_t j = 0; j < s_.n; j += kPanelColumns)
    pack_panel<kPanelColumns>({b + j * across, across, along},
                              std::min<std::int64_t>(kPanelColumns, s_.n - j), s_.k,
                              packed + j * s_.k);
}

void Product::run_packed(const float* a, const float* packed_b, const float* bias, float* c,
                         void* scratch, const Epilogue<float>& epilogue) const {
  HETU_ASSERT(packed_b_bytes() > 0);
  run_one({a, nullptr, packed_b, bias}, c, static_cast<float*>(scratch), epilogue);
}

void Product::run_one(const Operands& of, float* c, float* scratch,
                      const Epilogue<float>& epilogue) const {
  const std::int64_t ra = s_.transpose_a ? 1 : s_.k, la = s_.transpose_a ? s_.m : 1;
  const std::int64_t cb = s_.transpose_b ? s_.k : 1, lb = s_.transpose_b ? 1 : s_.n;
  float* packs_b = scratch + packed_rows() * up(depth_, 16);
  float* sums = packs_b + columns_ * up(depth_, 16);
  const bool packed = of.packed_b != nullptr;
  const Slabs most = slabs();
#pragma omp parallel if (s_.m * s_.n * s_.k > kParallelWork)
  for (std::int64_t j = 0; j < s_.n; j += most.columns)
    for (std::int64_t l = 0, depth; l < s_.k; l += depth) {
      const std::int64_t group = l / depth_ * depth_;
      depth = std::min({most.depth, group + depth_ - l, s_.k - l});
      const bool ends = l + depth == s_.k;
      for (std::int64_t i = 0; i < s_.m; i += most.rows) {
        const Slab slab = {
            .row = i,
            .rows = std::min(most.rows, s_.m - i),
            .column = j,
            .columns = std::min(most.columns, s_.n - j),
            .depth = depth,
            .chunk = chunks_ > 1 ? (l - group) / chunk_ : 0,
            .adds = s_.adds || (chunks_ > 1 ? group : l) > 0,
            .a = {of.a + i * ra + l * la, ra, la},
            .b = {packed ? nullptr : of.b + j * cb + l * lb, cb, lb},
            .packed_a = scratch,
            .packs_b = packed ? nullptr : packs_b,
            .packed_b = packed ? of.packed_b + j * s_.k + l * kPanelColumns : packs_b,
            .panel_depth = packed ? s_.k : depth,
            .bias = chunks_ == 1 && ends ? of.bias : nullptr,
            .epilogue = ends ? epilogue : Epilogue<float>{}};
        pack(slab);
        compute(slab, c, sums);
      }
      if (chunks_ > 1 && (ends || l + depth == group + depth_))
        add_chunks(group, ends ? of.bias : nullptr, c, sums);
    }
}

// Called by all threads of the team; ends with a barrier. Panels of B are packed once, with the
// first slab of rows, and used for all slabs of rows.
void Product::pack(const Slab& slab) const {
  const std::int64_t first = in_place_ ? slab.rows / kPanelRows : 0;
  const std::int64_t pa = parts(slab.rows, kPanelRows) - first;
  const bool packs_b = slab.row == 0 && slab.packs_b != nullptr;
  const std::int64_t pb = packs_b ? parts(slab.columns, kPanelColumns) : 0;
#pragma omp for schedule(static)
  for (std::int64_t p = 0; p < pa + pb; ++p) {
    if (p < pa) {
      const std::int64_t at = (first + p) * kPanelRows;
      pack_panel<kPanelRows>({slab.a.data + at * slab.a.across, slab.a.across, slab.a.along},
                             std::min<std::int64_t>(kPanelRows, slab.rows - at), slab.depth,
                             slab.packed_a + p * kPanelRows * slab.depth);
    } else {
      const std::int64_t at = (p - pa) * kPanelColumns;
      pack_panel<kPanelColumns>({slab.b.data + at * slab.b.across, slab.b.across, slab.b.along},
                                std::min<std::int64_t>(kPanelColumns, slab.columns - at),
                                slab.depth, slab.packs_b + at * slab.depth);
    }
  }
}

// Called by all threads of the team; ends with a barrier.
void Product::compute(const Slab& slab, float* c, float* partial) const {
  const std::int64_t chunks = chunks_ > 1 ? parts(slab.depth, chunk_) : 1;
  const std::int64_t tiles = parts(slab.rows, tile_.rows) * parts(slab.columns, tile_.columns);
#pragma omp for schedule(dynamic, 1)
  for (std::int64_t piece = 0; piece < tiles * chunks; ++piece) {
    compute_tile(slab, piece, c, partial);
    if (slab.epilogue.apply != nullptr) apply_epilogue(slab, piece, c);
  }
}

// Called by the thread that has computed the tile.
void Product::apply_epilogue(const Slab& slab, std::int64_t tile, const float* c) const {
  const std::int64_t across = parts(slab.columns, tile_.columns);
  const std::int64_t top = tile / across * tile_.rows, left = tile % across * tile_.columns;
  const std::int64_t columns = std::min(tile_.columns, slab.columns - left);
  for (std::int64_t i = top; i < std::min(slab.rows, top + tile_.rows); ++i) {
    const std::int64_t at = (slab.row + i) * s_.n + slab.column + left;
    slab.epilogue.run(c, at, columns);
  }
}

// Computes a tile of C from one chunk of the depth. The sums of the first chunk go to C, those of
// other chunks to `partial`.
void Product::compute_tile(const Slab& slab, std::int64_t piece, float* c, float* partial) const {
  const std::int64_t across = parts(slab.columns, tile_.columns);
  const std::int64_t tiles = parts(slab.rows, tile_.rows) * across;
  const std::int64_t tile = piece % tiles, chunk = slab.chunk + piece / tiles;
  const std::int64_t top = tile / across * tile_.rows, left = tile % across * tile_.columns;
  const std::int64_t bottom = std::min(slab.rows, top + tile_.rows);
  const std::int64_t right = std::min(slab.columns, left + tile_.columns);
  const std::int64_t begin = piece / tiles * chunk_, end = std::min(slab.depth, begin + chunk_);
  const std::int64_t step = std::min(step_, chunk_);
  const std::int64_t stride = chunk == 0 ? s_.n : columns_;
  float* to =
      chunk == 0 ? c + slab.row * s_.n + slab.column : partial + (chunk - 1) * rows_ * columns_;
  for (std::int64_t l = begin; l < end; l += step) {
    const std::int64_t depth = std::min(step, end - l);
    const bool adds = l > begin || (chunk == 0 && slab.adds);
    const float* bias = l + step >= end ? slab.bias : nullptr;
    for (std::int64_t j = left; j < right; j += kPanelColumns)
      for (std::int64_t i = top; i < bottom; i += kPanelRows) {
        const std::int64_t rows = std::min<std::int64_t>(kPanelRows, bottom - i);
        const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, right - j);
        if (s_.lower && slab.column + j >= slab.row + i + rows) continue;
        const float* b = slab.packed_b + j * slab.panel_depth + l * kPanelColumns;
        const Into into = {to + i * stride + j, stride, adds,
                           bias == nullptr ? nullptr : bias + slab.column + j};
        const float* a = slab.a.data + i * slab.a.across + l * slab.a.along;
        if (!in_place_ || rows < kPanelRows) {
          a = slab.packed_a + (in_place_ ? 0 : i * slab.depth) + l * kPanelRows;
          multiply<RowsTogether>({depth, a, kPanelRows, b}, into, rows, columns);
        } else if (s_.transpose_a) {
          multiply<RowsTogether>({depth, a, slab.a.along, b}, into, rows, columns);
        } else {
          multiply<RowsApart>({depth, a, slab.a.across, b}, into, rows, columns);
        }
      }
  }
}

// Adds the chunks of a group in order, then the bias. With chunks, one slab covers all rows and
// columns.
void Product::add_chunks(std::int64_t group, const float* bias, float* c,
                         const float* partial) const {
  const std::int64_t chunks = parts(std::min(depth_, s_.k - group), chunk_);
#pragma omp for schedule(static)
  for (std::int64_t row = 0; row < s_.m; ++row) {
    float* to = c + row * s_.n;
    const std::int64_t columns = s_.lower ? std::min(s_.n, row + 1) : s_.n;
    for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
      const float* from = partial + ((chunk - 1) * rows_ + row) * columns_;
#pragma omp simd
      for (std::int64_t j = 0; j < columns; ++j) to[j] += from[j];
    }
    if (bias != nullptr)
#pragma omp simd
      for (std::int64_t j = 0; j < s_.n; ++j) to[j] += bias[j];
  }
}

}  // namespace hetu::cpu
