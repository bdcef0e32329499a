// The column sums of sum_rows (reduce.cu), for kernels that need them as a by-product. Used by
// linear.cu.
#pragma once
#include <cstdint>

#include "base/dtype.h"

namespace hetu::cuda {

/// The kernel that computes to[j] = sum of column j of a matrix of float32, bfloat16 or float16.
struct ColumnSums {
  DType dtype;
  std::int64_t rows, columns;

  std::int64_t scratch_bytes() const;
  void operator()(const void* x, void* scratch, float* to) const;
};

}  // namespace hetu::cuda
