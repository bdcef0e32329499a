// Kronecker factors for tests: sums over rows, and what a back end makes of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/tensor_kernels.h"

namespace hetu::test {

/// The sum of x x^T over `rows` rows, [n, n].
inline std::vector<float> sum_of_rows(std::int64_t n, std::int64_t rows, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> sum(static_cast<std::size_t>(n * n), 0), x(static_cast<std::size_t>(n));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (float& value : x) value = normal(random);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) sum[i * n + j] += x[i] * x[j];
  }
  return sum;
}

/// Of a layer with n inputs and m outputs; neither inverse is asked for.
inline KroneckerCall factors_call(const std::vector<float>& a, std::int64_t n,
                                  const std::vector<float>& b, std::int64_t m, double damping) {
  KroneckerCall call;
  call.input_sum = a.data();
  call.gradient_sum = b.data();
  call.inputs = n;
  call.outputs = m;
  call.input_scale = 0.25;
  call.gradient_scale = 4;
  call.damping = damping;
  return call;
}

/// Of two tensors: how far apart, as a part of the second's length.
inline double part_apart(const float* got, const std::vector<float>& want) {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    apart += std::pow(double(got[i]) - double(want[i]), 2);
    length += std::pow(double(want[i]), 2);
  }
  return std::sqrt(apart / length);
}

}  // namespace hetu::test
