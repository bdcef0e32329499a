// Matrix products on several threads. The sums and their order follow from the shape alone. So no
// result depends on the number of threads or on their other work.
#pragma once
#include <cstdint>

#include "ops/cpu/few_rows.h"
#include "ops/cpu/product_shape.h"
#include "ops/cpu/product_tile.h"

namespace hetu::cpu {

/// One product, divided by its sizes at construction; sizes must be positive. A row of C depends
/// only on its row of A, on B and on k, unless A is transposed. Then the division of the depth
/// depends on m and n too.
class Product {
 public:
  explicit Product(const ProductShape& shape);

  /// Returns the bytes that run() needs at `scratch`, 64-byte aligned.
  std::int64_t scratch_bytes() const;

  /// `bias` is nullptr unless the shape has one. With `epilogue`, the product must be a single
  /// matrix and A not transposed.
  void run(const float* a, const float* b, const float* bias, float* c, void* scratch,
           const Epilogue<float>& epilogue = {}) const;

  /// Returns the bytes that pack_b() writes, or 0 if B is read in place or if there are several
  /// matrices.
  std::int64_t packed_b_bytes() const;

  /// Packs B once for any number of calls of run_packed(), with any m. Uses all threads.
  void pack_b(const float* b, float* packed) const;

  /// As run(), with a B packed by pack_b(). The results are bit-identical.
  void run_packed(const float* a, const float* packed_b, const float* bias, float* c, void* scratch,
                  const Epilogue<float>& epilogue = {}) const;

 private:
  struct Operands;
  struct Slab;
  struct Slabs {
    std::int64_t rows, columns, depth;  ///< upper bounds
  };
  void run_one(const Operands& of, float* c, float* scratch, const Epilogue<float>& epilogue) const;
  void pack(const Slab& slab) const;
  void compute(const Slab& slab, float* c, float* partial) const;
  void compute_tile(const Slab& slab, std::int64_t piece, float* c, float* partial) const;
  void apply_epilogue(const Slab& slab, std::int64_t tile, const float* c) const;
  void add_chunks(std::int64_t group, const float* bias, float* c, const float* partial) const;
  std::int64_t packed_rows() const;
  bool has_few_rows() const { return s_.m <= kFewRows && !s_.transpose_a; }
  Slabs slabs() const;

  ProductShape s_;
  std::int64_t rows_, columns_, depth_;  // of the largest slab that is packed at a time
  Tile tile_;                            // the part of C that a thread takes; changes no result
  std::int64_t step_;  // part of the depth with a sum of its own, which is added to C
  // Number and size of the chunks of a slab's depth, with separate sums.
  std::int64_t chunks_, chunk_;
  bool in_place_;  // A is read in place, except for an incomplete last panel
};

}  // namespace hetu::cpu
