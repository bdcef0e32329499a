// The operands of a matrix product, for Product and its parts.
#pragma once
#include <cstdint>

namespace hetu::cpu {

/// C[b] = A[b] B[b] (+ bias per column), float32, dense row-major. A is [batch, m, k], or [batch,
/// k, m] if transpose_a. B is [batch, k, n], or [batch, n, k] if transpose_b. bias is [n].
struct ProductShape {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  bool transpose_a = false, transpose_b = false;
  bool bias = false;
  /// Only with transpose_a. `adds`: the product is added to the contents of C. `lower` (float32
  /// only): only the lower triangle of C with the diagonal is computed, the other elements are
  /// undefined.
  bool adds = false, lower = false;
};

/// A function that is applied to a product's elements while they are in cache: y = f(C), or y =
/// f(C, other), element by element. If `apply` is nullptr, nothing is applied.
template <class T>
struct Epilogue {
  void (*apply)(const T* x, const T* other, T* y, std::int64_t n) = nullptr;
  T* y = nullptr;            ///< same layout as C; may be C itself
  const T* other = nullptr;  ///< same layout as C; may be nullptr, which `apply` then receives

  /// Applies the function to n elements of C, from offset `at` on.
  void run(const T* c, std::int64_t at, std::int64_t n) const {
    apply(c + at, other == nullptr ? nullptr : other + at, y + at, n);
  }
};

}  // namespace hetu::cpu
