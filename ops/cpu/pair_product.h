// Products of bfloat16 matrices in panels, two steps of the depth to an instruction: what
// AVX-512-BF16 has. For processors without AMX, whose own instructions oneDNN knows.
#pragma once
#include <cstdint>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "ops/cpu/product_shape.h"
#include "ops/cpu/product_tile.h"

namespace hetu::cpu {

/// How one product is cut: decided once, from the sizes. A row of C depends on its row of A, B and
/// k alone, but where A is transposed; no bit depends on the number of threads. Sums are float32,
/// two products to each addition, and subnormal numbers count as zeros.
class PairProduct {
 public:
  /// Whether this build multiplies pairs by an instruction, and the sizes are such that it pays:
  /// one matrix, an even k. Does not look at m unless A is transposed.
  static bool fits(const ProductShape& shape, DType to);

  /// C is `to`, float32 or bfloat16. The shape must fit, apart from what pays.
  PairProduct(const ProductShape& shape, DType to);

  /// Bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// `bias` is nullptr unless the shape has one; it is added before C is rounded. What is finished
  /// is bfloat16, and its A is not transposed.
  void run(const BFloat16* a, const BFloat16* b, const float* bias, void* c, void* scratch,
           const Finish<BFloat16>& finish = {}) const;

 private:
  struct Source;
  struct Slab;
  void pack(const Slab& slab) const;
  void compute_tile(const Slab& slab, std::int64_t tile) const;
  void multiply_tile(const Slab& slab, std::int64_t top, std::int64_t left, float* sums,
                     std::int64_t stride) const;
  void round_tile(const Slab& slab, std::int64_t top, std::int64_t left, const float* sums,
                  std::int64_t stride) const;
  std::int64_t packed_rows() const;

  ProductShape s_;
  bool narrow_;                          // C is bfloat16
  std::int64_t pairs_;                   // of the depth
  std::int64_t rows_, columns_, depth_;  // of the largest slab that is packed at a time
  Tile tile_;                            // of C, that one thread takes; it changes no bit
  std::int64_t step_;                    // pairs whose sum is added to C
  bool in_place_;                        // A is not packed, but for a last panel
};

}  // namespace hetu::cpu
