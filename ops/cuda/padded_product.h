// Products of two-byte floats of which one matrix has rows that are no multiple of 16 bytes, as
// logits of 30522 words have: the library's fast kernels want such rows, so that the matrix is
// copied on the way. Read by linear.cu.
#pragma once
#include <vector>

#include "ops/cuda/product.h"

namespace hetu::cuda {

/// When a matrix is copied: of fewer multiplications a copy takes longer than it saves. How many
/// bytes of its rows at a time.
struct PaddingLimits {
  std::int64_t least_work = std::int64_t{1} << 27, most_bytes = std::int64_t{64} << 20;
};

/// What a Product of the same arguments is, by way of scratch where A or C is copied. Where neither
/// is, it is that Product.
class PaddedProduct {
 public:
  /// `then` is Nothing or BiasGrad.
  PaddedProduct(const cpu::ProductShape& shape, DType dtype, DType result,
                Then then = Then::Nothing, PaddingLimits limits = {});
  std::int64_t scratch_bytes() const;
  void operator()(const void* a, const void* b, const void* bias, void* c, void* scratch) const;
  /// See Product. BiasGrad is not there in several pieces.
  void with_bias_grad(const void* a, const void* b, void* c, float* sums, void* scratch) const;
  bool there() const { return pieces_.size() == 1 && pieces_.front().product.there(); }

 private:
  enum class Copied : std::uint8_t { Nothing, A, C };
  struct Piece {
    std::int64_t first, rows;  // of what is copied
    Product product;
  };

  static Copied what_is_copied(const cpu::ProductShape& shape, DType dtype, DType result);
  void cut(std::int64_t rows, std::int64_t tall, DType dtype, DType result, Then then);

  cpu::ProductShape shape_;
  std::int64_t result_bytes_;  // of an element
  Copied copied_;
  std::int64_t width_ = 0, lead_ = 0;  // of the copy
  std::vector<Piece> pieces_;
};

}  // namespace hetu::cuda
