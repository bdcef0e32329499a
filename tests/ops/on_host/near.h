// Compares results of ops/cuda on the host with float64, for the tests of its rows.
#pragma once
#include <gtest/gtest.h>

#include <vector>

#include "tests/ops/cuda/cuda_tolerance.h"
#include "tests/ops/tensors.h"

namespace hetu::test {

/// Returns the tolerance for float32 rounding in the formula of an element, or for one rounding to
/// two bytes.
inline double tolerance(DType output) {
  return output == DType::BFloat16 ? 1.0 / 256 : output == DType::Float16 ? 1.0 / 2048 : 1e-6;
}

inline void expect_near(const KernelRow& row, const Case& c, const std::vector<Tensor>& got,
                        const std::vector<Tensor>& want) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    const DType dtype = bounding_dtype(row, c, i);
    EXPECT_LE(relative_difference(got[i].values(), want[i].values()),
              tolerance(dtype) * (is_narrow(dtype) ? roundings_of(row) : 1))
        << "output " << i;
  }
}

}  // namespace hetu::test
