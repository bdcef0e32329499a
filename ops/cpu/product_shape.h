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
};

}  // namespace hetu::cpu
