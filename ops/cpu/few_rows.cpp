// Products with up to four rows of A. They compute the sums of a blocked product in the same order,
// but don't pack B. Packing would read and write all of B to use each element of it only once or a
// few times.
#include "ops/cpu/few_rows.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace hetu::cpu {
namespace {

constexpr int kBytes = __BIGGEST_ALIGNMENT__;
using Vec = float __attribute__((vector_size(kBytes)));
using UnalignedVec = float __attribute__((vector_size(kBytes), aligned(4)));
constexpr std::int64_t kLanes = kBytes / 4;
// Number of columns whose sums for kFewRows rows stay in the first-level cache.
constexpr std::int64_t kMostColumns = 2048;
constexpr std::int64_t kUnit = 4 * kLanes;  // columns that one thread computes together
constexpr std::int64_t kAhead = 64;         // floats of a row that are prefetched
constexpr int kTogether = 4;                // steps of the depth per load of the sums
// With at most this number of multiplications, one thread is faster than several.
constexpr std::int64_t kParallelWork = 1 << 17;

Vec load(const float* p) { return *reinterpret_cast<const UnalignedVec*>(p); }
void store(float* p, const Vec& v) { *reinterpret_cast<UnalignedVec*>(p) = v; }

/// Columns [first, first + columns) of all rows of C.
struct Part {
  const ProductShape& s;
  std::int64_t step, first, columns;
  const float *a, *b, *bias;
  float* c;
};

/// Adds the sums of one step of the depth to C, which holds the sums of earlier steps. Adds the
/// bias after the last step.
void add_sums(const Part& p, std::int64_t row, std::int64_t l, std::int64_t first,
              std::int64_t columns, const float* sums) {
  float* to = p.c + row * p.s.n + first;
  const bool ends = l + p.step >= p.s.k;
  for (std::int64_t j = 0; j < columns; ++j) {
    float sum = sums[j];
    if (l > 0) sum += to[j];
    if (ends && p.bias != nullptr) sum += p.bias[first + j];
    to[j] = sum;
  }
}

/// Loads the first `count` numbers of a vector, then zeros. All products are of whole vectors,
/// because the compiler doesn't always fuse the multiplication and addition of single numbers.
Vec load(const float* p, std::int64_t count) {
  if (count >= kLanes) return load(p);
  Vec some{};
  std::memcpy(&some, p, static_cast<std::size_t>(count) * sizeof(float));
  return some;
}

/// sums [Rows, width] += the products of `Steps` steps of the depth from `l` on, in ascending
/// order.
template <int Rows, int Steps>
void add_steps(const Part& p, std::int64_t l, float* sums) {
  const float *a = p.a + l, *b = p.b + l * p.s.n + p.first;
  for (std::int64_t j = 0; j < p.columns; j += kLanes) {
    Vec row[Steps];
#pragma GCC unroll 4
    for (int t = 0; t < Steps; ++t) row[t] = load(b + t * p.s.n + j, p.columns - j);
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      float* const to = sums + i * kMostColumns + j;
      Vec sum = load(to);
#pragma GCC unroll 4
      for (int t = 0; t < Steps; ++t) sum += a[i * p.s.k + t] * row[t];
      store(to, sum);
    }
  }
}

/// For B [k, n]: reads along the rows of B.
template <int Rows>
void along_rows(const Part& p) {
  alignas(64) float sums[Rows * kMostColumns];
  const std::int64_t whole = (p.columns + kLanes - 1) / kLanes * kLanes;
  for (std::int64_t l = 0; l < p.s.k; l += p.step) {
    for (int i = 0; i < Rows; ++i) std::fill_n(sums + i * kMostColumns, whole, 0.0f);
    const std::int64_t end = std::min(l + p.step, p.s.k);
    std::int64_t at = l;
    for (; at + kTogether <= end; at += kTogether) add_steps<Rows, kTogether>(p, at, sums);
    for (; at < end; ++at) add_steps<Rows, 1>(p, at, sums);
    for (int i = 0; i < Rows; ++i) add_sums(p, i, l, p.first, p.columns, sums + i * kMostColumns);
  }
}

/// Swaps blocks of Size x Size that are off the diagonal, in two rows of a square. A step of
/// turn().
template <int Size, int... J>
inline void swap_blocks(std::integer_sequence<int, J...>, Vec& a, Vec& b) {
  constexpr int kCount = static_cast<int>(kLanes);
  const Vec low = __builtin_shufflevector(a, b, (J & Size ? J - Size + kCount : J)...);
  b = __builtin_shufflevector(a, b, (J & Size ? J + kCount : J + Size)...);
  a = low;
}

/// Transposes a square in registers: square[t][j] = square[j][t].
template <int Size = 1>
inline void turn(Vec (&square)[kLanes]) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    if ((i & Size) == 0)
      swap_blocks<Size>(std::make_integer_sequence<int, static_cast<int>(kLanes)>(), square[i],
                        square[i + Size]);
  if constexpr (2 * Size < kLanes) turn<2 * Size>(square);
}

/// sums [Rows] += the products of steps [l, l + depth), for the columns whose rows of B start at
/// `rows`.
template <int Rows>
void accumulate_turned(const Part& p, const float* const (&rows)[kLanes], std::int64_t l,
                       std::int64_t depth, Vec (&sums)[Rows]) {
  const std::int64_t end = l + depth;
  for (; l + kLanes <= end; l += kLanes) {
    Vec square[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      __builtin_prefetch(rows[j] + l + kAhead);
      square[j] = load(rows[j] + l);
    }
    turn(square);
    for (int t = 0; t < kLanes; ++t)
      for (int i = 0; i < Rows; ++i) sums[i] += p.a[i * p.s.k + l + t] * square[t];
  }
  for (; l < end; ++l) {
    Vec column{};
    for (int j = 0; j < kLanes; ++j) column[j] = rows[j][l];
    for (int i = 0; i < Rows; ++i) sums[i] += p.a[i * p.s.k + l] * column;
  }
}

/// For B [n, k]: a row of B is a column of the product.
template <int Rows>
void across_rows(const Part& p) {
  const std::int64_t last = p.first + p.columns - 1;
  for (std::int64_t j = p.first; j <= last; j += kLanes) {
    const float* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) rows[i] = p.b + std::min(j + i, last) * p.s.k;
    for (std::int64_t l = 0; l < p.s.k; l += p.step) {
      Vec sums[Rows] = {};
      accumulate_turned<Rows>(p, rows, l, std::min(p.step, p.s.k - l), sums);
      alignas(kBytes) float whole[kLanes];
      for (int i = 0; i < Rows; ++i) {
        store(whole, sums[i]);
        add_sums(p, i, l, j, std::min(kLanes, last + 1 - j), whole);
      }
    }
  }
}

template <int Rows>
void compute(const Part& p) {
  if (p.s.transpose_b)
    across_rows<Rows>(p);
  else
    along_rows<Rows>(p);
}

constexpr void (*kComputes[kFewRows])(const Part&) = {compute<1>, compute<2>, compute<3>,
                                                      compute<4>};

}  // namespace

void multiply_few_rows(const ProductShape& s, std::int64_t step, const float* a, const float* b,
                       const float* bias, float* c) {
  const bool alone = s.m * s.n * s.k <= kParallelWork;
  const std::int64_t threads = alone ? 1 : omp_get_max_threads();
  const std::int64_t share = (s.n + threads - 1) / threads;
  const std::int64_t columns = std::min(kMostColumns, (share + kUnit - 1) / kUnit * kUnit);
#pragma omp parallel for schedule(static) if (!alone)
  for (std::int64_t j = 0; j < s.n; j += columns)
    kComputes[s.m - 1]({s, step, j, std::min(columns, s.n - j), a, b, bias, c});
}

}  // namespace hetu::cpu
