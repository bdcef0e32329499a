// Kronecker factors for tests: sums over rows, and calls of a back end's inversion.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "ops/tensor_kernels.h"

namespace hetu::test {

/// Returns the sum of x x^T over `rows` random rows, [n, n].
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

/// Returns a call for a layer with n inputs and m outputs. It requests neither inverse.
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

/// Returns the distance of two tensors, relative to the norm of the second.
inline double part_apart(const float* got, const std::vector<float>& want) {
  double apart = 0, length = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    apart += std::pow(double(got[i]) - double(want[i]), 2);
    length += std::pow(double(want[i]), 2);
  }
  return std::sqrt(apart / length);
}

}  // namespace hetu::test
