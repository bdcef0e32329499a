// Products of small matrices on one thread. For kernels that keep a head or a tile in cache and
// call this from a parallel region. The overhead of a library's product would exceed the work.
#pragma once
#include <cstdint>

namespace hetu::cpu {

inline constexpr std::int64_t kVector = 16;  ///< floats of one vector

/// Rounds up to whole vectors.
inline std::int64_t padded(std::int64_t n) { return (n + kVector - 1) / kVector * kVector; }

/// C [m, n] = A [m, k] B [k, n]. A may have any strides, so that a transposed matrix needs no copy.
/// Rows of B and C are dense; consecutive rows are `b_stride` and `c_stride` floats apart.
struct SmallGemm {
  std::int64_t m, n, k;
  std::int64_t a_row, a_column, b_stride, c_stride;
};

/// C = A B, or C += A B if `accumulate`. n must be a multiple of 16. Sums run over k in ascending
/// order.
void small_gemm(const SmallGemm& shape, const float* a, const float* b, float* c, bool accumulate);

/// out [columns, padded(rows)] = x^T with zeros in the padding. x is [rows, columns] with rows
/// `stride` floats apart.
void pack_transposed(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     float* out);

}  // namespace hetu::cpu
