#include "ops/cpu/few_rows.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cstdlib>
#include <random>
#include <vector>

#include "ops/cpu/product.h"

namespace hetu::cpu {
namespace {

using Floats = std::vector<float>;

Floats drawn(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  Floats x(static_cast<std::size_t>(count));
  for (float& each : x) each = normal(random);
  return x;
}

Floats product(const ProductShape& s, const Floats& a, const Floats& b, const Floats& bias) {
  const Product product(s);
  Floats c(static_cast<std::size_t>(s.batch * s.m * s.n), -7.0f);
  void* const scratch =
      std::aligned_alloc(64, static_cast<std::size_t>(product.scratch_bytes() / 64 + 1) * 64);
  product.run(a.data(), b.data(), s.bias ? bias.data() : nullptr, c.data(), scratch);
  std::free(scratch);
  return c;
}

class FewRows : public testing::TestWithParam<bool> {};

// A predictor that computes one sample must get the same sums as if it computed many.
TEST_P(FewRows, HaveTheBitsThatTheyHaveAmongMany) {
  constexpr unsigned kSeed = 5;
  std::mt19937 random(kSeed);
  std::vector<std::array<std::int64_t, 2>> sizes = {{1, 1},     {3, 2},      {16, 64},   {33, 385},
                                                    {2049, 12}, {2100, 400}, {130, 1025}};
  for (int i = 0; i < 40; ++i)
    sizes.push_back({1 + static_cast<std::int64_t>(random() % 300),
                     1 + static_cast<std::int64_t>(random() % 900)});
  const int before = omp_get_max_threads();
  for (const auto [n, k] : sizes)
    for (std::int64_t m = 1; m <= kFewRows; ++m) {
      ProductShape many{1, 40, n, k, false, GetParam(), (n + k) % 2 == 0};
      const Floats a = drawn(random, many.m * k), b = drawn(random, n * k), bias = drawn(random, n);
      const Floats want = product(many, a, b, bias);
      ProductShape few = many;
      few.m = m;
      for (const int threads : {1, 3}) {
        omp_set_num_threads(threads);
        const Floats found = product(few, a, b, bias);
        ASSERT_EQ(found, Floats(want.begin(), want.begin() + m * n))
            << "m " << m << " n " << n << " k " << k << " threads " << threads << " seed " << kSeed;
      }
      omp_set_num_threads(before);
    }
}

INSTANTIATE_TEST_SUITE_P(TransposedB, FewRows, testing::Bool());

}  // namespace
}  // namespace hetu::cpu
