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
  /// With transpose_a alone: C holds sums already, to which more come; and, in float32, of each row
  /// of C only what stands up to its diagonal is made, the rest is anything.
  bool adds = false, lower = false;
};

/// What is made of a product's elements while they lie in a cache: y = f(C), or f(C, other),
/// element by element; nothing if `apply` is nullptr.
template <class T>
struct Finish {
  void (*apply)(const T* x, const T* other, T* y, std::int64_t n) = nullptr;
  T* y = nullptr;            ///< laid out as C, or C itself
  const T* other = nullptr;  ///< laid out as C, or nullptr: `apply` gets nullptr then

  /// Of n elements of C that lie `at` elements behind its first.
  void run(const T* c, std::int64_t at, std::int64_t n) const {
    apply(c + at, other == nullptr ? nullptr : other + at, y + at, n);
  }
};

}  // namespace hetu::cpu
