// What a matrix product is of; for Product and its parts.
#pragma once
#include <cstdint>

namespace hetu::cpu {

/// C[b] = A[b] B[b] (+ bias per column), float32, dense row-major. A is [batch, m, k], or
/// [batch, k, m] if transpose_a; B is [batch, k, n], or [batch, n, k] if transpose_b; bias is [n].
struct ProductShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  /// With transpose_a alone: C holds sums already, to which more come; and of each row of C only
  /// what stands up to its diagonal is made, the rest is anything.
  bool adds = false, lower = false;
};

}  // namespace hetu::cpu
