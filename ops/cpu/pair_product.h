// Products of bfloat16 matrices in panels, with AVX-512-BF16: one instruction processes two steps
// of the depth. For processors without AMX; with AMX, oneDNN is faster.
#pragma once
#include <cstdint>

#include "base/bfloat16.h"
#include "base/dtype.h"
#include "ops/cpu/product_shape.h"
#include "ops/cpu/product_tile.h"

namespace hetu::cpu {

/// One product, divided by its sizes at construction. A row of C depends only on its row of A, on B
/// and on k, unless A is transposed. No result depends on the number of threads. Sums are float32,
/// with two products per addition. Subnormal numbers count as zero.
class PairProduct {
 public:
  /// Returns true if this build has the instruction and the product is fast with it: one matrix, an
  /// even k, enough columns and steps. The answer doesn't depend on m unless A is transposed.
  static bool fits(const ProductShape& shape, DType to);

  /// C has dtype `to`, float32 or bfloat16. The shape must fulfil the conditions of fits() that
  /// don't concern speed.
  PairProduct(const ProductShape& shape, DType to);

  /// Returns the bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// `bias` is nullptr unless the shape has one. It is added before C is rounded. With `epilogue`,
  /// C must be bfloat16 and A not transposed.
  void run(const BFloat16* a, const BFloat16* b, const float* bias, void* c, void* scratch,
           const Epilogue<BFloat16>& epilogue = {}) const;

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
  Tile tile_;                            // the part of C that a thread takes; changes no result
  std::int64_t step_;                    // pairs with a sum of their own, which is added to C
  bool in_place_;                        // A is read in place, except for an incomplete last panel
};

}  // namespace hetu::cpu
