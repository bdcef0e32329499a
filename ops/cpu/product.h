// Matrix products, shared out among threads. Which sums are made, and in which order, follows from
// the shape alone: no bit depends on the number of threads, nor on what else they do.
#pragma once
#include <cstdint>

#include "ops/cpu/few_rows.h"
#include "ops/cpu/product_shape.h"
#include "ops/cpu/product_tile.h"

namespace hetu::cpu {

/// How one product is cut: decided once, from the sizes, which must be positive. A row of C depends
/// on its row of A, B and k alone, but where A is transposed: there depth is cut by m and n too.
class Product {
 public:
  explicit Product(const ProductShape& shape);

  /// Bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// `bias` is nullptr unless the shape has one. A product that is finished is one matrix, and its
  /// A is not transposed.
  void run(const float* a, const float* b, const float* bias, float* c, void* scratch,
           const Finish<float>& finish = {}) const;

  /// Bytes that pack_b() writes; 0 where a product reads B in its place, or is one of many.
  std::int64_t packed_b_bytes() const;

  /// Packs B once for any number of run_packed(), of any m. All threads take part.
  void pack_b(const float* b, float* packed) const;

  /// As run(), by a B that pack_b() packed: the same bits.
  void run_packed(const float* a, const float* packed_b, const float* bias, float* c, void* scratch,
                  const Finish<float>& finish = {}) const;

 private:
  struct Operands;
  struct Slab;
  struct Slabs {
    std::int64_t rows, columns, depth;  ///< at most
  };
  void run_one(const Operands& of, float* c, float* scratch, const Finish<float>& finish) const;
  void pack(const Slab& slab) const;
  void compute(const Slab& slab, float* c, float* partial) const;
  void compute_tile(const Slab& slab, std::int64_t piece, float* c, float* partial) const;
  void finish_tile(const Slab& slab, std::int64_t tile, const float* c) const;
  void add_chunks(std::int64_t group, const float* bias, float* c, const float* partial) const;
  std::int64_t packed_rows() const;
  bool has_few_rows() const { return s_.m <= kFewRows && !s_.transpose_a; }
  Slabs slabs() const;

  ProductShape s_;
  std::int64_t rows_, columns_, depth_;  // of the largest slab that is packed at a time
  Tile tile_;                            // of C, that one thread takes; it changes no bit
  std::int64_t step_;                    // of the depth, whose sum is added to C
  std::int64_t chunks_, chunk_;          // of a slab's depth, with sums of their own
  bool in_place_;                        // A is not packed, but for a last panel
};

}  // namespace hetu::cpu
