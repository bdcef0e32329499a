// A slab of B, and one of A unless its rows can be read where they are, are packed by all threads
// in panels as a micro-kernel reads them; then threads take tiles of C. Few tiles are cut along the
// depth too: chunks of it have sums of their own, added in order. Source of the scheme: Goto and
// van de Geijn 2008; Van Zee and van de Geijn 2015 (BLIS).
#include "ops/cpu/product.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "graph/base/error.h"

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
constexpr std::int64_t kDepth = kMostStep;                  // panels of it stay in the first
constexpr std::int64_t kSlabElements = 1 << 20;             // slabs stay in the last cache
constexpr std::int64_t kOwnElements = kDepth * kTileColumns;  // packed, in a second cache
constexpr std::int64_t kAliased = 1024;    // rows so far apart fall on few sets of the first cache
constexpr std::int64_t kFewColumns = 384;  // too few to make up for packing a transposed A
constexpr std::int64_t kPieces = 16;  // a product is cut into at least, if there is work for them
constexpr std::int64_t kParallelWork = 1 << 17;  // multiplications that are worth other threads

std::int64_t up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }
std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// The size of equal parts of n, none above `most`, in whole units.
std::int64_t even(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return up(parts(n, parts(n, std::max(most, unit))), unit);
}

/// A panel of A and a packed [depth, kPanelColumns] one of B. A's is packed too, [depth,
/// kPanelRows], or lies as the caller's. `stride` is from one step of the depth to the next where
/// rows are read together, and from one row to the next where they are read apart.
struct Panels {
  std::int64_t depth;
  const float* a;
  std::int64_t stride;
  const float* b;
};

/// Where their product goes; `bias` is added last, unless nullptr.
struct Into {
  float* c;
  std::int64_t stride;
  bool adds;
  const float* bias;
};

/// How the micro-kernel walks along a panel whose rows lie together: packed, or A is transposed.
struct RowsTogether {
  const float* at;
  std::int64_t stride;
  explicit RowsTogether(const Panels& from) : at(from.a), stride(from.stride) {}
  template <int I>
  float row() const {
    return at[I];
  }
  void next() { at += stride; }
};

/// The same where rows lie apart. An address is one of few pointers and none, once or twice the
/// stride: a pointer per row would not fit into the registers.
struct RowsApart {
  static constexpr int kEach = 3, kPointers = kPanelRows / kEach;
  const float* at[kPointers];
  std::int64_t stride;
  explicit RowsApart(const Panels& from) : stride(from.stride) {
    for (int i = 0; i < kPointers; ++i) at[i] = from.a + i * kEach * stride;
  }
  template <int I>
  float row() const {
    return at[I / kEach][I % kEach * stride];
  }
  void next() {
    for (const float*& p : at) ++p;
  }
};

// Indices are template arguments, since the compiler keeps an array in registers only if every
// index is a constant early on.
template <class Rows, int... I, int... J>
inline void multiply_panels(std::integer_sequence<int, I...>, std::integer_sequence<int, J...>,
                            const Panels& from, Into to) {
  const float* b = from.b;
  for (int i = 0; i < kPanelRows; ++i) {  // far from each other: no hardware foresees them
    __builtin_prefetch(to.c + i * to.stride, 1);
    __builtin_prefetch(to.c + i * to.stride + kPanelColumns - 1, 1);
  }
  Vec sum[] = {(static_cast<void>(I), Vec{})...};
  Rows a(from);
#pragma GCC unroll 4
  for (std::int64_t l = 0; l < from.depth; ++l, a.next(), b += kPanelColumns) {
    const Vec row[] = {*reinterpret_cast<const Vec*>(b + J * kLanes)...};
    ((sum[I] += a.template row<I / kVectors>() * row[I % kVectors]), ...);
  }
  const auto at = [=](int i) -> UnalignedVec& {
    return *reinterpret_cast<UnalignedVec*>(to.c + i / kVectors * to.stride +
                                            i % kVectors * kLanes);
  };
  if (to.adds) ((sum[I] = at(I) + sum[I]), ...);
  if (to.bias != nullptr) {
    const Vec more[] = {*reinterpret_cast<const UnalignedVec*>(to.bias + J * kLanes)...};
    ((sum[I] += more[I % kVectors]), ...);
  }
  ((at(I) = sum[I]), ...);
}

template <class Rows>
void multiply_panels(const Panels& from, Into to) {
  multiply_panels<Rows>(std::make_integer_sequence<int, kPanelRows * kVectors>(),
                        std::make_integer_sequence<int, kVectors>(), from, to);
}

/// The same where C has only `rows` x `columns` of it: the same sums, so the same bits.
template <class Rows>
void multiply_edge(const Panels& from, Into to, std::int64_t rows, std::int64_t columns) {
  alignas(64) float whole[kPanelRows * kPanelColumns];
  multiply_panels<Rows>(from, {whole, kPanelColumns, false, nullptr});
  for (std::int64_t i = 0; i < rows; ++i) {
    float *c = to.c + i * to.stride, *sum = whole + i * kPanelColumns;
    if (to.adds)
      for (std::int64_t j = 0; j < columns; ++j) sum[j] += c[j];
    if (to.bias != nullptr)
      for (std::int64_t j = 0; j < columns; ++j) sum[j] += to.bias[j];
    for (std::int64_t j = 0; j < columns; ++j) c[j] = sum[j];
  }
}

template <class Rows>
void multiply(const Panels& from, Into to, std::int64_t rows, std::int64_t columns) {
  if (rows == kPanelRows && columns == kPanelColumns)
    multiply_panels<Rows>(from, to);
  else
    multiply_edge<Rows>(from, to, rows, columns);
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
  constexpr std::int64_t kAhead = 16;
  if (width < Width) std::fill_n(out, depth * Width, 0.0f);
  if (width == Width && x.across == 1) {
    for (std::int64_t l = 0; l < depth; ++l, out += Width) {
      const float* from = x.data + l * x.along;
      __builtin_prefetch(from + kAhead * x.along);
      __builtin_prefetch(from + kAhead * x.along + Width - 1);
#pragma omp simd
      for (int i = 0; i < Width; ++i) out[i] = from[i];
    }
    return;
  }
  const std::int64_t fours = x.along == 1 ? width / 4 * 4 : 0;
  for (std::int64_t first = 0; first < depth; first += kSome) {
    const std::int64_t last = std::min(depth, first + kSome);
    const std::int64_t rest = first + (last - first) / 4 * 4;
    if (x.along == 1)  // into the second cache: in the first, rows may fall upon each other
      for (std::int64_t i = 0; i < width; ++i)
        __builtin_prefetch(x.data + i * x.across + first + 2 * kSome, 0, 2);
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
  std::int64_t row, rows, column, columns, depth;
  std::int64_t chunk;  // the first of it; where depth is not cut into chunks, all of it is one
  bool adds;           // C holds the sums of what comes before the first chunk
  Strided a, b;        // where it begins in the caller's
  float *packed_a, *packed_b;  // of A the last panel alone where it is read in place
  const float* bias;           // to add with the last sum of a tile, unless nullptr
  Finish<float> finish;        // of a tile with its last sum
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
  HETU_ASSERT(chunks_ == 1 || (rows_ >= s_.m && columns_ >= s_.n));
  HETU_ASSERT(s_.transpose_a || !(s_.adds || s_.lower));
  in_place_ = s_.transpose_a ? s_.m % kAliased != 0 && s_.n <= kFewColumns : s_.k % kAliased != 0;
}

// One thread alone packs what stays in its second cache until it is read. A team packs all at once:
// its threads would have to meet at every slab. Slabs end where steps do, or chunks if there are,
// so they change no bit.
Product::Slabs Product::slabs() const {
  if (omp_get_max_threads() > 1) return {rows_, columns_, depth_};
  const auto most = [](std::int64_t room, std::int64_t unit, std::int64_t all) {
    return std::min(std::max<std::int64_t>(1, room / unit) * unit, all);
  };
  const std::int64_t both = kOwnElements / (rows_ + columns_);
  if (chunks_ > 1) return {rows_, columns_, most(both, chunk_, depth_)};
  if (s_.transpose_a) {
    const std::int64_t depth = most(both, step_, depth_);
    return {most(kOwnElements / depth - columns_, tile_rows_, rows_), columns_, depth};
  }
  const std::int64_t columns = most(kOwnElements / step_, tile_columns_, columns_);
  return {rows_, columns, most(kOwnElements / columns, step_, depth_)};
}

std::int64_t Product::packed_rows() const { return in_place_ ? kPanelRows : rows_; }

std::int64_t Product::scratch_bytes() const {
  if (has_few_rows()) return 0;
  const std::int64_t sums = (chunks_ - 1) * rows_ * columns_;
  return ((packed_rows() + columns_) * up(depth_, 16) + sums) * std::int64_t{sizeof(float)};
}

void Product::run(const float* a, const float* b, const float* bias, float* c, void* scratch,
                  const Finish<float>& finish) const {
  HETU_ASSERT(finish.apply == nullptr || (s_.batch == 1 && !s_.transpose_a));
  for (std::int64_t i = 0; i < s_.batch; ++i) {
    const float *ai = a + i * s_.m * s_.k, *bi = b + i * s_.k * s_.n;
    float* const ci = c + i * s_.m * s_.n;
    if (!has_few_rows()) {
      run_one(ai, bi, bias, ci, static_cast<float*>(scratch), finish);
      continue;
    }
    multiply_few_rows(s_, step_, ai, bi, bias, ci);
    if (finish.apply != nullptr) finish.apply(ci, finish.y, s_.m * s_.n);
  }
}

void Product::run_one(const float* a, const float* b, const float* bias, float* c, float* scratch,
                      const Finish<float>& finish) const {
  const std::int64_t ra = s_.transpose_a ? 1 : s_.k, la = s_.transpose_a ? s_.m : 1;
  const std::int64_t cb = s_.transpose_b ? s_.k : 1, lb = s_.transpose_b ? 1 : s_.n;
  float* packed_b = scratch + packed_rows() * up(depth_, 16);
  float* sums = packed_b + columns_ * up(depth_, 16);
  const Slabs most = slabs();
#pragma omp parallel if (s_.m * s_.n * s_.k > kParallelWork)
  for (std::int64_t j = 0; j < s_.n; j += most.columns)
    for (std::int64_t l = 0, depth; l < s_.k; l += depth) {
      const std::int64_t group = l / depth_ * depth_;
      depth = std::min({most.depth, group + depth_ - l, s_.k - l});
      const bool ends = l + depth == s_.k;
      for (std::int64_t i = 0; i < s_.m; i += most.rows) {
        const Slab slab = {.row = i,
                           .rows = std::min(most.rows, s_.m - i),
                           .column = j,
                           .columns = std::min(most.columns, s_.n - j),
                           .depth = depth,
                           .chunk = chunks_ > 1 ? (l - group) / chunk_ : 0,
                           .adds = s_.adds || (chunks_ > 1 ? group : l) > 0,
                           .a = {a + i * ra + l * la, ra, la},
                           .b = {b + j * cb + l * lb, cb, lb},
                           .packed_a = scratch,
                           .packed_b = packed_b,
                           .bias = chunks_ == 1 && ends ? bias : nullptr,
                           .finish = ends ? finish : Finish<float>{}};
        pack(slab);
        compute(slab, c, sums);
      }
      if (chunks_ > 1 && (ends || l + depth == group + depth_))
        add_chunks(group, ends ? bias : nullptr, c, sums);
    }
}

// By all threads of the team, which meet behind it. The panels of B serve every slab of rows.
void Product::pack(const Slab& slab) const {
  const std::int64_t first = in_place_ ? slab.rows / kPanelRows : 0;
  const std::int64_t pa = parts(slab.rows, kPanelRows) - first;
  const std::int64_t pb = slab.row == 0 ? parts(slab.columns, kPanelColumns) : 0;
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
                                slab.depth, slab.packed_b + at * slab.depth);
    }
  }
}

// By all threads of the team, which meet behind it.
void Product::compute(const Slab& slab, float* c, float* partial) const {
  const std::int64_t chunks = chunks_ > 1 ? parts(slab.depth, chunk_) : 1;
  const std::int64_t tiles = parts(slab.rows, tile_rows_) * parts(slab.columns, tile_columns_);
#pragma omp for schedule(dynamic, 1)
  for (std::int64_t piece = 0; piece < tiles * chunks; ++piece) {
    compute_tile(slab, piece, c, partial);
    if (slab.finish.apply != nullptr) finish_tile(slab, piece, c);
  }
}

// By the thread that has just made the tile.
void Product::finish_tile(const Slab& slab, std::int64_t tile, const float* c) const {
  const std::int64_t across = parts(slab.columns, tile_columns_);
  const std::int64_t top = tile / across * tile_rows_, left = tile % across * tile_columns_;
  const std::int64_t columns = std::min(tile_columns_, slab.columns - left);
  for (std::int64_t i = top; i < std::min(slab.rows, top + tile_rows_); ++i) {
    const std::int64_t at = (slab.row + i) * s_.n + slab.column + left;
    slab.finish.apply(c + at, slab.finish.y + at, columns);
  }
}

// A tile of C from one chunk of the depth: the first chunk's sums go to C, others' to `partial`.
void Product::compute_tile(const Slab& slab, std::int64_t piece, float* c, float* partial) const {
  const std::int64_t across = parts(slab.columns, tile_columns_);
  const std::int64_t tiles = parts(slab.rows, tile_rows_) * across;
  const std::int64_t tile = piece % tiles, chunk = slab.chunk + piece / tiles;
  const std::int64_t top = tile / across * tile_rows_, left = tile % across * tile_columns_;
  const std::int64_t bottom = std::min(slab.rows, top + tile_rows_);
  const std::int64_t right = std::min(slab.columns, left + tile_columns_);
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
        const float* b = slab.packed_b + j * slab.depth + l * kPanelColumns;
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

// Adds the chunks of a group in order, and what is added in the end. There is one slab of rows and
// columns then.
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
