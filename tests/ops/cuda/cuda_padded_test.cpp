// Tests products and activations of two-byte floats for the GPU, run on the host. Products use rows
// that are multiples of 16 bytes, and functions are as exact as two bytes allow.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "ops/cuda/padded_product.h"
#include "ops/cuda/short_math.h"
#include "tests/ops/floats.h"
#include "tests/ops/on_host/kernel_context.h"
#include "tests/ops/tensors.h"

namespace hetu::test {
namespace {

using cpu::ProductShape;
using cuda::PaddedProduct;
using cuda::PaddingLimits;
using cuda::Product;
using cuda::ShortMath;
using cuda::Then;

constexpr std::uint64_t kSeed = 20251128;
constexpr std::int64_t kWords = 22, kUneven = 21;  // three packs are 24

/// A product's operands, the initial contents of C, and the results with and without copies.
struct Both {
  Tensor a, b, bias, sum;
  TensorType c;

  Both(const ProductShape& s, DType dtype, DType result)
      : a({dtype, {s.m * s.k}}),
        b({dtype, {s.k * s.n}}),
        bias({dtype, {s.n}}),
        sum({result, {s.m * s.n}}),
        c(sum.type()) {
    std::uint64_t salt = 0;
    for (Tensor* t : {&a, &b, &bias, &sum})
      for (std::int64_t i = 0; i < t->count(); ++i, ++salt)
        t->set(i, static_cast<double>((kSeed + 31 * salt * salt) % 17) / 8 - 1);
  }

  template <class Multiply>
  Tensor made(const ProductShape& s, const Multiply& multiply) const {
    Tensor to(c, 0xff);
    if (s.adds) std::memcpy(to.data(), sum.data(), static_cast<std::size_t>(sum.bytes()));
    multiply(a.data(), b.data(), s.bias ? bias.data() : nullptr, to.data());
    return to;
  }
};

/// Returns the products y, dx and dw of a linear layer with an odd matrix whose rows have `wide`
/// elements.
std::vector<std::pair<ProductShape, DType>> products_of_layers(DType dtype, std::int64_t wide) {
  constexpr std::int64_t kRows = 7, kInner = 16;
  ProductShape y{1, kRows, wide, kInner, false, true}, dw{1, wide, kInner, kRows, true};
  const ProductShape dx{1, kRows, kInner, wide};
  std::vector<std::pair<ProductShape, DType>> all = {
      {y, dtype}, {dx, dtype}, {dx, DType::Float32}, {dw, dtype}, {dw, DType::Float32}};
  y.bias = true;
  all.emplace_back(y, dtype);
  dw.adds = true;
  all.emplace_back(dw, DType::Float32);
  return all;
}

class Padded : public testing::TestWithParam<std::tuple<DType, std::int64_t, std::int64_t>> {};

// Copies are made in chunks of all rows, of some rows or of one row. The product of the copies must
// equal the product without them.
TEST_P(Padded, MakesWhatAProductMakes) {
  const HostKernelContext host;
  const auto [dtype, wide, rows] = GetParam();
  for (const auto& [shape, result] : products_of_layers(dtype, wide)) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, {}, adds {}", shape.m, shape.n, shape.k,
                             dtype_name(result), shape.adds));
    const PaddedProduct padded(shape, dtype, result, Then::Nothing, {0, rows * 48});
    // A sum in two bytes is not computed in chunks.
    const bool stays = shape.transpose_a && result == dtype && rows < shape.k;
    EXPECT_EQ(padded.scratch_bytes(), stays ? 0 : std::min<std::int64_t>(rows, 7) * 48);
    Tensor scratch({DType::Int8, {padded.scratch_bytes()}}, 0xff);
    const Both of(shape, dtype, result);
    const Product plain(shape, dtype, result);
    const Tensor want = of.made(shape, plain);
    const Tensor got = of.made(shape, [&](const void* a, const void* b, const void* bias, void* c) {
      padded(a, b, bias, c, scratch.data());
    });
    EXPECT_TRUE(scratch.guards_hold() && got.guards_hold());
    if (rows >= 7)
      EXPECT_TRUE(got.same_bits(want));
    else
      EXPECT_LE(relative_difference(got.values(), want.values()), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Padded,
                         testing::Combine(testing::Values(DType::BFloat16, DType::Float16),
                                          testing::Values(kWords, kUneven),
                                          testing::Values(100, 7, 4, 1)),
                         [](const auto& one) {
                           return fmt::format("{}_{}_by_{}", dtype_name(std::get<0>(one.param)),
                                              std::get<1>(one.param), std::get<2>(one.param));
                         });

// Covers the gradient of a bias if one product computes both gradients.
TEST(PaddedProduct, SumsBiasGradientsInOnePiece) {
  const HostKernelContext host;
  const ProductShape shape{1, kWords, 16, 7, true};
  const DType dtype = DType::BFloat16, result = DType::Float32;
  EXPECT_FALSE(PaddedProduct(shape, dtype, result, Then::BiasGrad, {0, 4 * 48}).there());
  const PaddedProduct padded(shape, dtype, result, Then::BiasGrad, {0, 7 * 48});
  const Product plain(shape, dtype, result, Then::BiasGrad);
  ASSERT_TRUE(padded.there());
  EXPECT_EQ(padded.scratch_bytes(), 7 * 48);
  Tensor scratch({DType::Int8, {padded.scratch_bytes()}}, 0xff);
  Tensor sums({result, {kWords}}), want_sums({result, {kWords}});
  const Both of(shape, dtype, result);
  const Tensor want = of.made(shape, [&](const void* a, const void* b, const void*, void* c) {
    plain.with_bias_grad(a, b, c, want_sums.as<float>());
  });
  const Tensor got = of.made(shape, [&](const void* a, const void* b, const void*, void* c) {
    padded.with_bias_grad(a, b, c, sums.as<float>(), scratch.data());
  });
  EXPECT_TRUE(got.same_bits(want) && sums.same_bits(want_sums));
}

// No copy is made if it gains nothing: aligned rows, four-byte floats, batches, two odd matrices,
// or little work.
TEST(PaddedProduct, CopiesWhatGainsByItAlone) {
  const auto scratch = [](const ProductShape& s, DType dtype = DType::BFloat16,
                          PaddingLimits limits = {0, 1 << 20}) {
    return PaddedProduct(s, dtype, dtype, Then::Nothing, limits).scratch_bytes();
  };
  ProductShape y{1, 7, kWords, 16, false, true};
  EXPECT_EQ(scratch(y), 7 * 48);
  EXPECT_EQ(scratch(y, DType::Float32), 0);
  EXPECT_EQ(scratch(y, DType::BFloat16, {7 * 16 * kWords + 1, 1 << 20}), 0);
  EXPECT_EQ(scratch(y, DType::BFloat16, {7 * 16 * kWords, 1 << 20}), 7 * 48);
  EXPECT_EQ(scratch({1, 7, 24, 16, false, true}), 0);
  EXPECT_EQ(scratch({2, 7, kWords, 16, false, true}), 0);
  EXPECT_EQ(scratch({1, 7, kWords, kUneven, false, true}), 0);
  EXPECT_EQ(scratch({1, 7, kWords, 16}), 0) << "B's rows do not fit";
  // the output layer of BERT, and one that is too long to be copied whole
  EXPECT_EQ(scratch({1, 640, 30522, 1024, false, true}, DType::BFloat16, PaddingLimits()),
            640 * 30528 * 2);
  EXPECT_EQ(scratch({1, 4096, 30522, 1024, false, true}, DType::BFloat16, PaddingLimits()),
            1024 * 30528 * 2);
}

// Covers sizes of zero: there is nothing to copy, and empty sums are zeros.
TEST(PaddedProduct, TakesSizesOfNothing) {
  const HostKernelContext host;
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    for (const bool transposed : {false, true})
      for (const ProductShape& shape : {ProductShape{1, 2, 3, 0, transposed},
                                        {1, 0, 3, 2, transposed},
                                        {1, 2, 0, 3, transposed}}) {
        SCOPED_TRACE(fmt::format("{} x {} x {} {}", shape.m, shape.n, shape.k, transposed));
        const PaddedProduct padded(shape, dtype, dtype, Then::Nothing, PaddingLimits());
        EXPECT_EQ(padded.scratch_bytes(), 0);
        const Both of(shape, dtype, dtype);
        const Tensor got = of.made(shape, [&](const void* a, const void* b, const void* bias,
                                              void* c) { padded(a, b, bias, c, nullptr); });
        for (const double made : got.values()) EXPECT_EQ(made, 0);
      }
}

TEST(ShortMath, IsWithinItsBound) {
  double worst = 0, of_exp = 0;
  for (int i = -120000; i <= 120000; ++i) {
    const float x = static_cast<float>(i) * 1e-4F;
    worst = std::max(worst, std::fabs(ShortMath::erf(x) - std::erf(double(x))));
    const double power = std::exp(double(x));
    of_exp = std::max(of_exp, std::fabs(ShortMath::exp(x) - power) / power);
  }
  EXPECT_LE(worst, 5e-7);
  EXPECT_LE(of_exp, 2e-6);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float large : {9.0F, 1e20F, kInfinity}) {
    EXPECT_EQ(ShortMath::erf(large), 1.0F);
    EXPECT_EQ(ShortMath::erf(-large), -1.0F);
  }
  EXPECT_TRUE(std::isnan(ShortMath::erf(std::numeric_limits<float>::quiet_NaN())));
}

}  // namespace
}  // namespace hetu::test
