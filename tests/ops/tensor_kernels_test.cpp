// Compares the tensor_kernels.h rows that averages use with their formulas, element by element and
// bit for bit. Threads may share a tensor, and the element past its end must not change.
#include "ops/tensor_kernels.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace hetu {
namespace {

constexpr std::int64_t kSizes[] = {0, 1, 17, 100003};

template <class T = float>
std::vector<T> numbers(std::int64_t elements, unsigned seed) {
  std::mt19937 draw(seed);
  std::normal_distribution<T> normal(0, 3);
  // the last element must not be touched
  std::vector<T> out(static_cast<std::size_t>(elements) + 1);
  for (T& x : out) x = normal(draw);
  return out;
}

// Checks that row(to) sets each element i of `to` to formula(i).
template <class T, class Row, class Formula>
void expect_bits(std::int64_t elements, std::vector<T> to, const Row& row, const Formula& formula) {
  std::vector<T> wanted = to;
  for (std::size_t i = 0; i < static_cast<std::size_t>(elements); ++i) wanted[i] = formula(i);
  row(to.data());
  EXPECT_EQ(to, wanted) << elements << " elements";
}

TEST(TensorKernels, Add) {
  for (const std::int64_t n : kSizes) {
    const auto to = numbers(n, 1), from = numbers(n, 2);
    expect_bits(
        n, to, [&](float* at) { cpu_tensor_kernels().add(at, from.data(), n); },
        [&](std::size_t i) { return to[i] + from[i]; });
  }
}

TEST(TensorKernels, AddDifference) {
  for (const std::int64_t n : kSizes) {
    const auto to = numbers(n, 1), a = numbers(n, 2), b = numbers(n, 3);
    expect_bits(
        n, to, [&](float* at) { cpu_tensor_kernels().add_difference(at, a.data(), b.data(), n); },
        [&](std::size_t i) {
          const float difference = a[i] - b[i];
          return to[i] + difference;
        });
  }
}

TEST(TensorKernels, AddWide) {
  for (const std::int64_t n : kSizes) {
    const auto to = numbers<double>(n, 1);
    const auto from = numbers(n, 2);
    expect_bits(
        n, to, [&](double* at) { cpu_tensor_kernels().add_wide(at, from.data(), n); },
        [&](std::size_t i) { return to[i] + double{from[i]}; });
  }
}

TEST(TensorKernels, Mean) {
  for (const std::int64_t n : kSizes) {
    const auto to = numbers(n, 1);
    const auto sum = numbers<double>(n, 2);
    expect_bits(
        n, to, [&](float* at) { cpu_tensor_kernels().mean(at, sum.data(), 3, n); },
        [&](std::size_t i) { return static_cast<float>(sum[i] / 3); });
  }
}

TEST(TensorKernels, Scale) {
  for (const std::int64_t n : kSizes) {
    const auto to = numbers(n, 1);
    expect_bits(
        n, to, [&](float* at) { cpu_tensor_kernels().scale(at, 1.0F / 3, n); },
        [&](std::size_t i) { return to[i] * (1.0F / 3); });
  }
}

}  // namespace
}  // namespace hetu
