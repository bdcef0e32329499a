#include "ops/cpu/pair_product.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

namespace hetu::cpu {
namespace {

using Floats = std::vector<float>;
using Narrow = std::vector<BFloat16>;

Narrow drawn(std::mt19937& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  Narrow x(static_cast<std::size_t>(count));
  for (BFloat16& each : x) each = BFloat16(normal(random));
  return x;
}

struct Operands {
  Narrow a, b;
  Floats bias;
  Operands(const ProductShape& s, unsigned seed) {
    std::mt19937 random(seed);
    a = drawn(random, s.m * s.k);
    b = drawn(random, s.n * s.k);
    const Narrow more = drawn(random, s.n);
    bias.assign(more.begin(), more.end());
  }
};

void twice(const BFloat16* x, const BFloat16* /*other*/, BFloat16* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = BFloat16(2 * float(x[i]));
}

/// Returns C, whose initial elements are ones. For bfloat16, the finishing function doubles the
/// result.
Floats product(const ProductShape& s, DType to, const Operands& from) {
  const PairProduct product(s, to);
  const auto elements = static_cast<std::size_t>(s.m * s.n);
  Floats wide(elements, 1.0f);
  Narrow narrow(elements, BFloat16(1.0f));
  void* const scratch =
      std::aligned_alloc(64, static_cast<std::size_t>(product.scratch_bytes() / 64 + 1) * 64);
  const float* bias = s.bias ? from.bias.data() : nullptr;
  const bool rounds = to == DType::BFloat16;
  void* const c = rounds ? static_cast<void*>(narrow.data()) : wide.data();
  const bool finishes = rounds && !s.transpose_a;
  product.run(from.a.data(), from.b.data(), bias, c, scratch,
              finishes ? Epilogue<BFloat16>{twice, narrow.data()} : Epilogue<BFloat16>{});
  std::free(scratch);
  if (!rounds) return wide;
  Floats c_read(narrow.begin(), narrow.end());
  if (finishes)
    for (float& each : c_read) each /= 2;
  return c_read;
}

double wanted(const ProductShape& s, const Operands& from, std::int64_t i, std::int64_t j) {
  double sum = s.bias ? from.bias[static_cast<std::size_t>(j)] : 0;
  for (std::int64_t l = 0; l < s.k; ++l) {
    const auto a = static_cast<std::size_t>(s.transpose_a ? l * s.m + i : i * s.k + l);
    const auto b = static_cast<std::size_t>(s.transpose_b ? j * s.k + l : l * s.n + j);
    sum += double{float(from.a[a])} * double{float(from.b[b])};
  }
  return s.adds ? sum + 1 : sum;
}

/// Covers full and partial panels, and several slabs of rows, columns and depth. Rows of A are read
/// in place or packed, and operands have either orientation.
std::vector<ProductShape> shapes() {
  return {{1, 37, 70, 66, false, true, true},         {1, 5, 64, 2048, false, true, false},
          {1, 130, 420, 900, false, false, false},    {1, 14, 70, 8300, false, true, true},
          {1, 9, 600, 8196, false, false, false},     {1, 150, 200, 130, true, false, false},
          {1, 700, 90, 8300, true, false, false},     {1, 150, 200, 130, true, false, false, true},
          {1, 40, 130, 8300, true, true, false, true}};
}

TEST(PairProduct, IsTheProductWhateverItsSizesAndTheThreads) {
  const int before = omp_get_max_threads();
  unsigned seed = 0;
  for (const ProductShape& s : shapes()) {
    const Operands from(s, ++seed);
    for (const DType to : {DType::Float32, DType::BFloat16}) {
      if (s.adds && to == DType::BFloat16) continue;
      omp_set_num_threads(1);
      const Floats got = product(s, to, from);
      omp_set_num_threads(3);
      EXPECT_EQ(product(s, to, from), got) << "three threads make other bits, seed " << seed;
      omp_set_num_threads(before);
      const double rounding = to == DType::BFloat16 ? 1.0 / 256 : 0;
      for (std::int64_t i = 0; i < s.m; i += 1 + s.m / 30)
        for (std::int64_t j = 0; j < s.n; j += 1 + s.n / 40) {
          const double want = wanted(s, from, i, j);
          ASSERT_NEAR(got[static_cast<std::size_t>(i * s.n + j)], want,
                      rounding * std::abs(want) + 2e-6 * static_cast<double>(s.k))
              << "seed " << seed << " row " << i << " column " << j;
        }
    }
  }
}

// A sample's result must not depend on its micro-batch.
TEST(PairProduct, OfARowIsTheSameAmongManyAndAlone) {
  for (ProductShape s : shapes()) {
    if (s.transpose_a) continue;
    const Operands from(s, 11);
    const Floats all = product(s, DType::BFloat16, from);
    const std::int64_t n = s.n;
    for (const std::int64_t few : {1, 5}) {
      s.m = few;
      EXPECT_EQ(product(s, DType::BFloat16, from), Floats(all.begin(), all.begin() + few * n))
          << few << " rows of depth " << s.k;
    }
  }
}

TEST(PairProduct, LeavesOddDepthsBatchesAndSumsThatAreRounded) {
  const ProductShape good{1, 8, 128, 128, false, true, false};
  // depends on the processor's instruction
  const bool has = PairProduct::fits(good, DType::BFloat16);
  ProductShape odd = good, batch = good, adds{1, 256, 256, 128, true, false, false, true};
  odd.k = 127;
  batch.batch = 2;
  EXPECT_FALSE(PairProduct::fits(odd, DType::BFloat16));
  EXPECT_FALSE(PairProduct::fits(batch, DType::BFloat16));
  EXPECT_FALSE(PairProduct::fits(adds, DType::BFloat16));
  EXPECT_EQ(PairProduct::fits(adds, DType::Float32), has);
}

}  // namespace
}  // namespace hetu::cpu
