// Matrix products on the device, and how the row-major ones of operators look to a library that
// counts columns first. Read by linear.cu and conv.cu;
// gpu/product.cpp runs them through cuBLASLt.
#pragma once
#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/error.h"
#include "ops/cpu/product_shape.h"

namespace hetu::cuda {

/// A matrix as it lies in memory, columns first: `batch` of them, `stride` elements apart.
struct ColumnMajor {
  std::int64_t rows = 0, columns = 0, leading = 0, stride = 0;
};

/// How far apart rows of A and of C lie, in elements, where that is more than their widths: of one
/// matrix, not of a batch.
struct Leads {
  std::int64_t a = 0, c = 0;
};

/// C = A B of row-major matrices as C' = op(B') op(A') of their transposes: `first` is B's memory,
/// `second` A's. A bias per column of C is one per row of C'.
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

/// What a product's operands may be relied on to be aligned to, in bytes.
inline constexpr std::int64_t kProductAlignment = 16;

/// What a product may do with its results before it writes them, or beside them: the gradient of a
/// bias is the sums of A's rows (of a layer's dy^T) over k.
enum class Then : std::uint8_t { Nothing, Relu, GeluTanh, BiasGrad };

/// That `then` goes with the rest.
inline void check_then(const cpu::ProductShape& shape, DType result, Then then) {
  const bool sums = then == Then::BiasGrad;
  HETU_ASSERT(!sums || (!shape.bias && shape.batch == 1 && result == DType::Float32));
  HETU_ASSERT(sums || then == Then::Nothing || (shape.bias && !shape.adds));
}

/// One product of a shape and dtype (float32, bfloat16 or float16, summed in float32), run on the
/// queue of the calling thread. Copies share what the library was asked once. `lower` of the shape
/// is not heeded.
class Product {
 public:
  Product(const cpu::ProductShape& shape, DType dtype) : Product(shape, dtype, dtype) {}
  /// C is of dtype `result`, that of A and B or float32; a bias wants that of A and B. `then` wants
  /// a bias, and is exact for Relu alone; BiasGrad wants none, float32 for C, and one matrix.
  Product(const cpu::ProductShape& shape, DType dtype, DType result, Then then = Then::Nothing,
          Leads leads = {});
  /// bias is nullptr unless the shape has one. Of k = 0 nothing is added, or the result is 0.
  /// GeluTanh writes what it was made of to `before`, laid out as C. With `leads` k is not 0.
  void operator()(const void* a, const void* b, const void* bias, void* c,
                  void* before = nullptr) const;
  /// Of a shape that adds: C = A B + sum, which is laid out as C and of its dtype; rounded once.
  void plus(const void* a, const void* b, const void* sum, void* c) const;
  /// Of BiasGrad, where it is there: the sums, m of them, are written whether or not C is added to.
  void with_bias_grad(const void* a, const void* b, void* c, float* sums) const;
  /// Whether the library does it on this card, asked on a queue. Without `then` it is there. Not
  /// where C or k is empty or the library would round what BiasGrad sums (TF32).
  bool there() const;

 private:
  struct Plan;
  std::shared_ptr<Plan> plan_;
};

}  // namespace hetu::cuda
