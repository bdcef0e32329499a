// A slab of A and one of B are packed side by side by all threads, in panels as a micro-kernel
// reads them; then threads take tiles of C. Few tiles are cut along the depth too: chunks of it
// have sums of their own, added in order. Source of the scheme: Goto and van de Geijn 2008; Van Zee
// and van de Geijn 2015 (BLIS).
#include "ops/cpu/product.h"

#include <algorithm>
#include <utility>

namespace hetu::cpu {
namespace {

// One register of this machine, as the compiler says; accumulators fill most of them.
constexpr int kBytes = __BIGGEST_ALIGNMENT__;
using Vec = float __attribute__((vector_size(kBytes)));
using UnalignedVec = float __attribute__((vector_size(kBytes), aligned(4)));
constexpr int kLanes = kBytes / 4;
constexpr int kVectors = 2;
constexpr int kPanelRows = kBytes == 64 ? 12 : 6;
constexpr int kPanelColumns = kVectors * kLanes;

constexpr std::int64_t kTileRows = 96, kTileColumns = 384;  // a tile of C stays in the second cache
constexpr std::int64_t kDepth = 384;                        // panels of it stay in the first
constexpr std::int64_t kSlabElements = 1 << 20;             // slabs stay in the last cache
constexpr std::int64_t kPieces = 16;  // a product is cut into at least, if there is work for them
constexpr std::int64_t kParallelWork = 1 << 17;  // multiplications that are worth other threads

std::int64_t up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// The size of equal parts of n, none above `most`, in whole units.
std::int64_t even(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return up(parts(n, parts(n, std::max(most, unit))), unit);
}

/// A [depth, kPanelRows] panel and a [depth, kPanelColumns] one.
struct Panels {
  std::int64_t depth;
  const float *a, *b;
};

/// Where their product goes.
struct Into {
  float* c;
  std::int64_t stride;
  bool adds;
};

// Indices are template arguments, since the compiler keeps an array in registers only if every
// index is a constant early on.
template <int... I, int... J>
inline void multiply_panels(std::integer_sequence<int, I...>, std::integer_sequence<int, J...>,
                            Panels from, Into to) {
  const float *a = from.a, *b = from.b;
  for (int i = 0; i < kPanelRows; ++i) {  // far from each other: no hardware foresees them
    __builtin_prefetch(to.c + i * to.stride, 1);
    __builtin_prefetch(to.c + i * to.stride + kPanelColumns - 1, 1);
  }
  Vec sum[] = {(static_cast<void>(I), Vec{})...};
#pragma GCC unroll 4
  for (std::int64_t l = 0; l < from.depth; ++l, a += kPanelRows, b += kPanelColumns) {
    const Vec row[] = {*reinterpret_cast<const Vec*>(b + J * kLanes)...};
    ((sum[I] += a[I / kVectors] * row[I % kVectors]), ...);
  }
  const auto at = [=](int i) -> UnalignedVec& {
    return *reinterpret_cast<UnalignedVec*>(to.c + i / kVectors * to.stride +
                                            i % kVectors * kLanes);
  };
  if (to.adds)
    ((at(I) += sum[I]), ...);
  else
    ((at(I) = sum[I]), ...);
}

void multiply_panels(Panels from, Into to) {
  multiply_panels(std::make_integer_sequence<int, kPanelRows * kVectors>(),
                  std::make_integer_sequence<int, kVectors>(), from, to);
}

/// The same where C has only `rows` x `columns` of it: the same sums, so the same bits.
void multiply_edge(Panels from, Into to, std::int64_t rows, std::int64_t columns) {
  alignas(64) float whole[kPanelRows * kPanelColumns];
  multiply_panels(from, {whole, kPanelColumns, false});
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      float& c = to.c[i * to.stride + j];
      const float sum = whole[i * kPanelColumns + j];
      c = to.adds ? c + sum : sum;
    }
}

/// A matrix seen along its depth: element (i, l) lies at i * across + l * along.
struct Strided {
  const float* data;
  std::int64_t across, along;
};

/// Four rows of four become four columns of out [4, Width].
template <int Width>
inline void transpose_quad(const float* rows, std::int64_t across, float* out) {
  using Quad = float __attribute__((vector_size(16)));
  using UnalignedQuad = float __attribute__((vector_size(16), aligned(4)));
  const auto row = [=](int i) -> Quad {
    return *reinterpret_cast<const UnalignedQuad*>(rows + i * across);
  };
  const auto put = [=](int l, Quad column) {
    *reinterpret_cast<UnalignedQuad*>(out + l * Width) = column;
  };
  const Quad a = row(0), b = row(1), c = row(2), d = row(3);
  const Quad ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  put(0, __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5));
  put(1, __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7));
  put(2, __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5));
  put(3, __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7));
}

/// out [depth, Width] = the first `width` of Width, with zeros behind.
template <int Width>
void pack_panel(const Strided& x, std::int64_t width, std::int64_t depth, float* out) {
  constexpr std::int64_t kSome = 16;  // a cache line of a row at a time
  if (width < Width) std::fill_n(out, depth * Width, 0.0f);
  if (width == Width && x.across == 1) {
    for (std::int64_t l = 0; l < depth; ++l, out += Width)
#pragma omp simd
      for (int i = 0; i < Width; ++i) out[i] = x.data[l * x.along + i];
    return;
  }
  const std::int64_t fours = x.along == 1 ? width / 4 * 4 : 0;
  for (std::int64_t first = 0; first < depth; first += kSome) {
    const std::int64_t last = std::min(depth, first + kSome);
    const std::int64_t rest = first + (last - first) / 4 * 4;
    for (std::int64_t i = 0; i < fours; i += 4)
      for (std::int64_t l = first; l < rest; l += 4)
        transpose_quad<Width>(x.data + i * x.across + l, x.across, out + l * Width + i);
    for (std::int64_t i = 0; i < width; ++i)
      for (std::int64_t l = i < fours ? rest : first; l < last; ++l)
        out[l * Width + i] = x.data[i * x.across + l * x.along];
  }
}

}  // namespace

// What is packed now: a part of C, and a part of the depth.
struct Product::Slab {
  std::int64_t row, rows, column, columns, from, depth;
  const float *a, *b;  // packed
};

Product::Product(const ProductShape& shape) : s_(shape) {
  step_ = even(s_.k, kDepth, 4);
  rows_ = even(s_.m, std::max<std::int64_t>(1536, kSlabElements / step_), kPanelRows);
  columns_ = even(s_.n, 3072, kPanelColumns);
  const std::int64_t steps =
      std::max<std::int64_t>(1, kSlabElements / std::max(rows_, columns_) / step_);
  depth_ = std::min(parts(s_.k, step_), steps) * step_;
  tile_rows_ = even(rows_, kTileRows, kPanelRows);
  tile_columns_ = even(columns_, kTileColumns, kPanelColumns);
  const auto tiles = [&] { return parts(rows_, tile_rows_) * parts(columns_, tile_columns_); };
  while (tiles() < kPieces && tile_columns_ > 64)
    tile_columns_ = up(tile_columns_ / 2, kPanelColumns);
  while (tiles() < kPieces && tile_rows_ > 24) tile_rows_ = up(tile_rows_ / 2, kPanelRows);
  const std::int64_t most = s_.transpose_a ? parts(kPieces, tiles()) : 1;
  chunk_ = up(parts(depth_, std::clamp<std::int64_t>(depth_ / 128, 1, most)), 4);
  chunks_ = parts(depth_, chunk_);
}

std::int64_t Product::scratch_bytes() const {
  const std::int64_t sums = (chunks_ - 1) * rows_ * columns_;
  return ((rows_ + columns_) * up(depth_, 16) + sums) * std::int64_t{sizeof(float)};
}

void Product::run(const float* a, const float* b, const float* bias, float* c,
                  void* scratch) const {
  for (std::int64_t i = 0; i < s_.batch; ++i)
    run_one(a + i * s_.m * s_.k, b + i * s_.k * s_.n, bias, c + i * s_.m * s_.n,
            static_cast<float*>(scratch));
}

void Product::run_one(const float* a, const float* b, const float* bias, float* c,
                      float* scratch) const {
  const std::int64_t ra = s_.transpose_a ? 1 : s_.k, la = s_.transpose_a ? s_.m : 1;
  const std::int64_t cb = s_.transpose_b ? s_.k : 1, lb = s_.transpose_b ? 1 : s_.n;
  float *packed_a = scratch, *packed_b = packed_a + rows_ * up(depth_, 16);
#pragma omp parallel if (s_.m * s_.n * s_.k > kParallelWork)
  for (std::int64_t j = 0; j < s_.n; j += columns_)
    for (std::int64_t l = 0; l < s_.k; l += depth_)
      for (std::int64_t i = 0; i < s_.m; i += rows_) {
        const Slab slab{i, std::min(rows_, s_.m - i),  j,        std::min(columns_, s_.n - j),
                        l, std::min(depth_, s_.k - l), packed_a, packed_b};
        const std::int64_t pa = parts(slab.rows, kPanelRows);
        const std::int64_t pb = i == 0 ? parts(slab.columns, kPanelColumns) : 0;
#pragma omp for schedule(static)
        for (std::int64_t p = 0; p < pa + pb; ++p) {
          if (p < pa) {
            const std::int64_t at = p * kPanelRows;
            pack_panel<kPanelRows>({a + (i + at) * ra + l * la, ra, la},
                                   std::min<std::int64_t>(kPanelRows, slab.rows - at), slab.depth,
                                   packed_a + at * slab.depth);
          } else {
            const std::int64_t at = (p - pa) * kPanelColumns;
            pack_panel<kPanelColumns>({b + (j + at) * cb + l * lb, cb, lb},
                                      std::min<std::int64_t>(kPanelColumns, slab.columns - at),
                                      slab.depth, packed_b + at * slab.depth);
          }
        }
        compute(slab, bias, c, packed_b + columns_ * up(depth_, 16));
      }
}

// By all threads of the team, which meet behind it.
void Product::compute(const Slab& slab, const float* bias, float* c, float* partial) const {
  const std::int64_t chunks = parts(slab.depth, chunk_);
  const std::int64_t tiles = parts(slab.rows, tile_rows_) * parts(slab.columns, tile_columns_);
#pragma omp for schedule(dynamic, 1)
  for (std::int64_t piece = 0; piece < tiles * chunks; ++piece)
    compute_tile(slab, piece, c, partial);
  const bool last = slab.from + slab.depth == s_.k;
  if (chunks == 1 && !(last && bias != nullptr)) return;
#pragma omp for schedule(static)
  for (std::int64_t row = 0; row < slab.rows; ++row)
    finish(slab, row, last ? bias : nullptr, c, partial);
}

// A tile of C from one chunk of the depth: the first chunk's sums go to C, others' to `partial`.
void Product::compute_tile(const Slab& slab, std::int64_t piece, float* c, float* partial) const {
  const std::int64_t across = parts(slab.columns, tile_columns_);
  const std::int64_t tiles = parts(slab.rows, tile_rows_) * across;
  const std::int64_t tile = piece % tiles, chunk = piece / tiles;
  const std::int64_t top = tile / across * tile_rows_, left = tile % across * tile_columns_;
  const std::int64_t bottom = std::min(slab.rows, top + tile_rows_);
  const std::int64_t right = std::min(slab.columns, left + tile_columns_);
  const std::int64_t begin = chunk * chunk_, end = std::min(slab.depth, begin + chunk_);
  const std::int64_t step = std::min(step_, chunk_);
  const std::int64_t stride = chunk == 0 ? s_.n : columns_;
  float* to =
      chunk == 0 ? c + slab.row * s_.n + slab.column : partial + (chunk - 1) * rows_ * columns_;
  for (std::int64_t l = begin; l < end; l += step) {
    const std::int64_t depth = std::min(step, end - l);
    const bool adds = l > begin || (chunk == 0 && slab.from > 0);
    for (std::int64_t j = left; j < right; j += kPanelColumns)
      for (std::int64_t i = top; i < bottom; i += kPanelRows) {
        const Panels from = {depth, slab.a + i * slab.depth + l * kPanelRows,
                             slab.b + j * slab.depth + l * kPanelColumns};
        const Into into = {to + i * stride + j, stride, adds};
        const std::int64_t rows = std::min<std::int64_t>(kPanelRows, bottom - i);
        const std::int64_t columns = std::min<std::int64_t>(kPanelColumns, right - j);
        if (rows == kPanelRows && columns == kPanelColumns)
          multiply_panels(from, into);
        else
          multiply_edge(from, into, rows, columns);
      }
  }
}

// Adds the chunks of one row in order, and what is added in the end.
void Product::finish(const Slab& slab, std::int64_t row, const float* bias, float* c,
                     const float* partial) const {
  float* to = c + (slab.row + row) * s_.n + slab.column;
  const std::int64_t chunks = parts(slab.depth, chunk_);
  for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
    const float* from = partial + ((chunk - 1) * rows_ + row) * columns_;
#pragma omp simd
    for (std::int64_t j = 0; j < slab.columns; ++j) to[j] += from[j];
  }
  if (bias == nullptr) return;
#pragma omp simd
  for (std::int64_t j = 0; j < slab.columns; ++j) to[j] += bias[slab.column + j];
}

}  // namespace hetu::cpu
