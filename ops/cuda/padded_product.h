// Products of two-byte floats in which a matrix has rows that are no multiple of 16 bytes, such as
// logits of 30522 words. The library's fast kernels need such multiples, so the matrix is copied to
// padded scratch memory. Used by linear.cu.
#pragma once
#include <vector>

#include "ops/cuda/product.h"

namespace hetu::cuda {

/// Limits for copying a matrix. `least_work` is the minimum number of multiplications, below which
/// a copy takes longer than it saves. `most_bytes` is the maximum size of the rows copied at a
/// time.
struct PaddingLimits {
  std::int64_t least_work = std::int64_t{1} << 27, most_bytes = std::int64_t{64} << 20;
};

/// A product with the arguments of Product that copies A or C by way of scratch memory where that
/// is faster. Otherwise it is exactly that Product.
class PaddedProduct {
 public:
  /// `then` must be Nothing or BiasGrad.
  PaddedProduct(const cpu::ProductShape& shape, DType dtype, DType result,
                Then then = Then::Nothing, PaddingLimits limits = {});
  std::int64_t scratch_bytes() const;
  void operator()(const void* a, const void* b, const void* bias, void* c, void* scratch) const;
  /// See Product. BiasGrad is not available if the product runs in several pieces.
  void with_bias_grad(const void* a, const void* b, void* c, float* sums, void* scratch) const;
  /// Returns true if with_bias_grad() is available.
  bool there() const { return pieces_.size() == 1 && pieces_.front().product.there(); }

 private:
  enum class Copied : std::uint8_t { Nothing, A, C };
  struct Piece {
    std::int64_t first, rows;  // rows of the copied matrix
    Product product;
  };

  static Copied what_is_copied(const cpu::ProductShape& shape, DType dtype, DType result);
  void cut(std::int64_t rows, std::int64_t tall, DType dtype, DType result, Then then);

  cpu::ProductShape shape_;
  std::int64_t result_bytes_;  // per element
  Copied copied_;
  std::int64_t width_ = 0, lead_ = 0;  // of the copy
  std::vector<Piece> pieces_;
};

}  // namespace hetu::cuda
