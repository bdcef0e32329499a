// Matrix products on the device, and the conversion of row-major operands for a library that is
// column-major. Used by linear.cu and conv.cu. gpu/product.cpp runs products through cuBLASLt.
#pragma once
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/cpu/product_shape.h"

namespace hetu::cuda {

/// The column-major layout of `batch` matrices that are `stride` elements apart.
struct ColumnMajor {
  std::int64_t rows = 0, columns = 0, leading = 0, stride = 0;
};

/// Distances between the rows of A and of C, in elements, if larger than their widths. For single
/// matrices only, not for batches.
struct Leads {
  std::int64_t a = 0, c = 0;
};

/// The operands of C = A B for row-major matrices, written as C' = op(B') op(A') for their
/// column-major transposes. `first` is B's memory, `second` A's. A bias per column of C is a bias
/// per row of C'.
struct ProductLayout {
  ColumnMajor first, second, result;
  bool transpose_first = false, transpose_second = false;

  explicit ProductLayout(const cpu::ProductShape& p, Leads leads = {})
      : first(p.transpose_b ? ColumnMajor{p.k, p.n, p.k, p.k * p.n}
                            : ColumnMajor{p.n, p.k, p.n, p.k * p.n}),
        second(p.transpose_a ? ColumnMajor{p.m, p.k, p.m, p.m * p.k}
                             : ColumnMajor{p.k, p.m, p.k, p.m * p.k}),
        result{p.n, p.m, p.n, p.m * p.n},
        transpose_first(p.transpose_b),
        transpose_second(p.transpose_a) {
    HETU_ASSERT(p.batch == 1 || (leads.a == 0 && leads.c == 0));
    if (leads.a > 0) second.leading = leads.a;
    if (leads.c > 0) result.leading = leads.c;
  }
};

/// Alignment in bytes that a product's operands are guaranteed to have.
inline constexpr std::int64_t kProductAlignment = 16;

/// An operation that a product applies to its results before it writes them, or a sum that it
/// computes in addition. BiasGrad, the gradient of a bias, is the sum of each row of A (of a
/// layer's dy^T) over k.
enum class Then : std::uint8_t { Nothing, Relu, GeluTanh, BiasGrad };

/// Checks that `then` is compatible with the shape and the result's dtype.
inline void check_then(const cpu::ProductShape& shape, DType result, Then then) {
  const bool sums = then == Then::BiasGrad;
  HETU_ASSERT(!sums || (!shape.bias && shape.batch == 1 && result == DType::Float32));
  HETU_ASSERT(sums || then == Then::Nothing || (shape.bias && !shape.adds));
}

/// A product of a shape and dtype (float32, bfloat16 or float16, summed in float32), run on the
/// queue of the calling thread. Copies share the library's plan. Ignores ProductShape::lower.
class Product {
 public:
  Product(const cpu::ProductShape& shape, DType dtype) : Product(shape, dtype, dtype) {}
  /// C has the dtype `result`: that of A and B, or float32. A bias requires the dtype of A and B.
  /// Relu and GeluTanh require a bias, and only Relu is exact. BiasGrad requires no bias, float32
  /// for C, and a single matrix.
  Product(const cpu::ProductShape& shape, DType dtype, DType result, Then then = Then::Nothing,
          Leads leads = {});
  /// Computes the product. `bias` is null unless the shape has one. For k = 0, nothing is added, or
  /// the result is 0. GeluTanh writes its input to `before`, which has the layout of C. With
  /// `leads`, k must not be 0.
  void operator()(const void* a, const void* b, const void* bias, void* c,
                  void* before = nullptr) const;
  /// Computes C = A B + sum, rounded once, for a shape that adds. `sum` has the layout and dtype of
  /// C.
  void plus(const void* a, const void* b, const void* sum, void* c) const;
  /// Computes the product and writes the m sums, for BiasGrad if there() is true. The sums are
  /// overwritten even if C is added to.
  void with_bias_grad(const void* a, const void* b, void* c, float* sums) const;
  /// Returns true if the library supports the product on this GPU. Must be called on a queue.
  /// Without `then` it always returns true. For BiasGrad it returns false if C or k is empty, and
  /// if the library would round the summed operand (TF32).
  bool there() const;

 private:
  struct Plan;
  std::shared_ptr<Plan> plan_;
};

}  // namespace hetu::cuda
