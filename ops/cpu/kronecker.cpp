// Damped inverses of Kronecker factors by Cholesky in float64, for a factor F [n, n]:
//
//   1. M = scale F + damping I            lower triangle
//   2. M = L L^T                          factorise: blocks of 64 columns, left-looking
//   3. X = L^-T, from X L^T = I           invert_triangle: row by row, X is upper triangular
//   4. M^-1 = L^-T L^-1 = X X^T           multiply_triangle computes -X X^T
//
// Each step is almost entirely one operation: to[r][c] -= dot(a_r, b_c) for rows a_r and b_c.
// subtract_tile computes it in registers, for 4 x 3 results at a time. Threads take groups of rows.
// The order of every sum is fixed, so results don't depend on the number of threads.
#include "ops/cpu/kronecker.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ops/cpu/product.h"

namespace hetu::cpu {
namespace {

constexpr std::int64_t kBlock = 64;  // columns that are solved at once
constexpr std::int64_t kGroup = 32;  // rows that one thread takes
// Elements of kBlock rows that stay in the second-level cache.
constexpr std::int64_t kDepth = 512;
constexpr std::int64_t kSmall = 64;  // sides that aren't worth waking other threads for

// Vec is one register, as the compiler reports it. A tile of sums fills most registers.
constexpr int kLanes = __BIGGEST_ALIGNMENT__ / 8;
using Vec = double __attribute__((vector_size(kLanes * 8)));
using UnalignedVec = double __attribute__((vector_size(kLanes * 8), aligned(8)));
constexpr int kTileRows = 4, kTileColumns = 3;

// Rows of a matrix, `stride` elements apart.
struct RowsOfDoubles {
  double* data;
  std::int64_t stride;
  double* row(std::int64_t i) const { return data + i * stride; }
};

// A square matrix of float64, initialized to zero.
class Square {
 public:
  Square(double* values, std::int64_t side) : side_(side), values_(values) {
    std::fill_n(values, side * side, 0.0);
  }
  double* row(std::int64_t i) { return values_ + i * side_; }
  const double* row(std::int64_t i) const { return values_ + i * side_; }
  RowsOfDoubles rows(std::int64_t first) { return {row(first), side_}; }
  std::int64_t side() const { return side_; }

 private:
  std::int64_t side_;
  double* values_;
};

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// to[r][c] -= dot(a_r, b_c) over `depth` elements, for R rows a and C rows b.
template <int R, int C>
void subtract_tile(RowsOfDoubles a, RowsOfDoubles b, std::int64_t depth, RowsOfDoubles to) {
  Vec sums[R][C] = {};
  std::int64_t l = 0;
  for (; l + kLanes <= depth; l += kLanes) {
    Vec of_b[C];
    for (int c = 0; c < C; ++c) of_b[c] = *reinterpret_cast<const UnalignedVec*>(b.row(c) + l);
    for (int r = 0; r < R; ++r) {
      const Vec of_a = *reinterpret_cast<const UnalignedVec*>(a.row(r) + l);
      for (int c = 0; c < C; ++c) sums[r][c] += of_a * of_b[c];
    }
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < C; ++c) {
      double sum = 0;
      for (int i = 0; i < kLanes; ++i) sum += sums[r][c][i];
      for (std::int64_t k = l; k < depth; ++k) sum += a.row(r)[k] * b.row(c)[k];
      to.row(r)[c] -= sum;
    }
}

// As above, for a tile at an edge, of `rows` x `columns`.
void subtract_tile(RowsOfDoubles a, RowsOfDoubles b, std::int64_t depth, RowsOfDoubles to,
                   std::int64_t rows, std::int64_t columns) {
  if (rows == kTileRows && columns == kTileColumns) {
    subtract_tile<kTileRows, kTileColumns>(a, b, depth, to);
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      subtract_tile<1, 1>({a.row(r), 0}, {b.row(c), 0}, depth, {to.row(r) + c, 0});
}

struct Elements {
  std::int64_t begin, end;
};

// to[r][c] -= dot(a_r, b_c) over the elements `of` of the rows.
void subtract_products(RowsOfDoubles a, std::int64_t rows, RowsOfDoubles b, std::int64_t columns,
                       Elements of, RowsOfDoubles to) {
  for (std::int64_t l = of.begin; l < of.end; l += kDepth)
    for (std::int64_t r = 0; r < rows; r += kTileRows)
      for (std::int64_t c = 0; c < columns; c += kTileColumns)
        subtract_tile({a.row(r) + l, a.stride}, {b.row(c) + l, b.stride},
                      std::min(kDepth, of.end - l), {to.row(r) + c, to.stride},
                      std::min<std::int64_t>(kTileRows, rows - r),
                      std::min<std::int64_t>(kTileColumns, columns - c));
}

// Solves y L^T = (old y) for the columns [first, end) of `rows` rows. Columns [from, first) are
// already solved, and columns before `from` are zero.
void solve(RowsOfDoubles y, std::int64_t rows, Square& l, std::int64_t from, std::int64_t first,
           std::int64_t end) {
  subtract_products(y, rows, l.rows(first), end - first, {from, first}, {y.data + first, y.stride});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = first; j < end; ++j)
      y.row(r)[j] =
          (y.row(r)[j] - dot(y.row(r) + first, l.row(j) + first, j - first)) / l.row(j)[j];
}

// Replaces the lower triangle of M by L with M = L L^T. Threads take groups of rows. The order of
// every sum is independent of their number.
void factorise(Square& m) {
  const std::int64_t n = m.side();
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t end = std::min(n, first + kBlock);
    subtract_products(m.rows(first), end - first, m.rows(first), end - first, {0, first},
                      {m.row(first) + first, n});
    for (std::int64_t i = first; i < end; ++i) {
      for (std::int64_t j = first; j < i; ++j)
        m.row(i)[j] =
            (m.row(i)[j] - dot(m.row(i) + first, m.row(j) + first, j - first)) / m.row(j)[j];
      m.row(i)[i] = std::sqrt(m.row(i)[i] - dot(m.row(i) + first, m.row(i) + first, i - first));
    }
#pragma omp parallel for schedule(dynamic) if (parallel : n - end > kSmall)
    for (std::int64_t i = end; i < n; i += kGroup)
      solve(m.rows(i), std::min(kGroup, n - i), m, 0, first, end);
  }
}

// Computes the transpose of L^-1. Row j of `out`, which must be zero, becomes column j of the
// inverse.
void invert_triangle(Square& l, Square& out) {
  const std::int64_t n = l.side();
#pragma omp parallel for schedule(dynamic) if (parallel : n > kSmall)
  for (std::int64_t i = 0; i < n; i += kGroup) {
    const std::int64_t rows = std::min(kGroup, n - i);
    for (std::int64_t r = 0; r < rows; ++r) out.row(i + r)[i + r] = 1;
    for (std::int64_t first = i; first < n; first += kBlock)
      solve(out.rows(i), rows, l, i, first, std::min(n, first + kBlock));
  }
}

// Computes the lower triangle of -X X^T for an upper triangular X. Also writes some elements above
// the diagonal.
void multiply_triangle(Square& x, Square& to) {
  const std::int64_t n = x.side();
#pragma omp parallel for schedule(dynamic) if (parallel : n > kSmall)
  for (std::int64_t i = 0; i < n; i += kGroup) {
    const std::int64_t rows = std::min(kGroup, n - i);
    for (std::int64_t r = i; r < i + rows; ++r) std::fill_n(to.row(r), i + rows, 0.0);
    for (std::int64_t j = 0; j < i + rows; j += kBlock)
      subtract_products(x.rows(i), rows, x.rows(j), std::min(kBlock, i + rows - j), {i, n},
                        {to.row(i) + j, n});
  }
}

void multiply(const ProductShape& shape, const float* a, const float* b, float* to,
              std::byte* scratch) {
  Product(shape).run(a, b, nullptr, to, scratch);
}

// Plain loops, for checks in float64.
void multiply(const ProductShape& s, const double* a, const double* b, double* to,
              std::byte* /*scratch*/) {
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < s.k; ++l) sum += a[i * s.k + l] * b[l * s.n + j];
      to[i * s.n + j] = sum;
    }
}

// The shapes of the two products of a preconditioning.
ProductShape from_left(std::int64_t rows, std::int64_t columns) {
  return {1, rows, columns, rows, false, false, false};
}
ProductShape from_right(std::int64_t rows, std::int64_t columns) {
  return {1, rows, columns, columns, false, false, false};
}

// Rounds up to cache lines, so that the memory after the first product is aligned.
std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

template <class T>
double diagonal_mean(const T* factor, std::int64_t side) {
  double sum = 0;
  for (std::int64_t i = 0; i < side; ++i) sum += static_cast<double>(factor[i * side + i]);
  return sum / static_cast<double>(side);
}

template <class T>
void damped_inverse(const T* factor, std::int64_t n, double scale, double damping, T* to,
                    double* scratch) {
  Square m(scratch, n), inverse(scratch + n * n, n);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j <= i; ++j)
      m.row(i)[j] = scale * static_cast<double>(factor[i * n + j]);
    m.row(i)[i] += damping;
  }
  factorise(m);
  invert_triangle(m, inverse);
  multiply_triangle(inverse, m);
#pragma omp parallel for schedule(static) if (parallel : n > kSmall)
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      to[i * n + j] = static_cast<T>(-(i >= j ? m.row(i)[j] : m.row(j)[i]));
}

void invert_factors(const KroneckerCall& c) {
  const FactorDamping damping =
      damping_of(c.input_scale * diagonal_mean(c.input_sum, c.inputs),
                 c.gradient_scale * diagonal_mean(c.gradient_sum, c.outputs), c.damping);
  if (c.input_inverse != nullptr)
    damped_inverse(c.input_sum, c.inputs, c.input_scale, damping.input, c.input_inverse,
                   static_cast<double*>(c.scratch));
  if (c.gradient_inverse != nullptr)
    damped_inverse(c.gradient_sum, c.outputs, c.gradient_scale, damping.gradient,
                   c.gradient_inverse, static_cast<double*>(c.scratch));
}

template <class T>
void precondition(T* gradient, std::int64_t rows, std::int64_t columns, const T* gradient_inverse,
                  const T* input_inverse, void* scratch) {
  auto* const half = static_cast<T*>(scratch);
  auto* const more = static_cast<std::byte*>(scratch) +
                     padded(rows * columns * static_cast<std::int64_t>(sizeof(T)));
  multiply(from_left(rows, columns), gradient_inverse, gradient, half, more);
  if (input_inverse == nullptr)
    std::copy_n(half, rows * columns, gradient);
  else
    multiply(from_right(rows, columns), half, input_inverse, gradient, more);
}

std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs) {
  const std::int64_t side = std::max(inputs, outputs);
  const std::int64_t inversion = 2 * side * side * static_cast<std::int64_t>(sizeof(double));
  const std::int64_t of_products = std::max({Product(from_left(outputs, inputs)).scratch_bytes(),
                                             Product(from_right(outputs, inputs)).scratch_bytes(),
                                             Product(from_left(outputs, 1)).scratch_bytes()});
  return std::max(inversion, padded(inputs * outputs * 4) + of_products);
}

template double diagonal_mean(const float*, std::int64_t);
template double diagonal_mean(const double*, std::int64_t);
template void damped_inverse(const float*, std::int64_t, double, double, float*, double*);
template void damped_inverse(const double*, std::int64_t, double, double, double*, double*);
template void precondition(float*, std::int64_t, std::int64_t, const float*, const float*, void*);
template void precondition(double*, std::int64_t, std::int64_t, const double*, const double*,
                           void*);

}  // namespace hetu::cpu
