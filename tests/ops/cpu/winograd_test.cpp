// Compares Winograd's convolutions with oneDNN's, in shapes of many blocks of tiles. The operator
// grid compares small shapes with float64.
#include "ops/cpu/winograd.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <random>

#include "ops/cpu/dnnl_conv.h"
#include "tests/ops/tensors.h"

namespace hetu {
namespace {

using cpu::ConvResult;
using cpu::ConvShape;
using cpu::DnnlConv;
using cpu::Winograd;
using test::relative_difference;
using test::Tensor;

constexpr std::uint64_t kSeed = 20261125;
constexpr ConvResult kResults[] = {ConvResult::Output, ConvResult::InputGrad,
                                   ConvResult::WeightGrad};

ConvShape shape_of(std::int64_t n, std::int64_t from, std::int64_t to, std::int64_t height,
                   std::int64_t width, std::int64_t padding) {
  return {{n, from, height, width},
          {n, to, height + 2 * padding - 2, width + 2 * padding - 2},
          {3, 3, 1, padding}};
}

// 90 images of 16 tiles are more blocks than are processed at a time. The weights of the last shape
// need more than one pass.
const ConvShape kShapes[] = {shape_of(90, 32, 32, 14, 14, 1), shape_of(61, 48, 80, 7, 8, 1),
                             shape_of(9, 64, 32, 26, 31, 2), shape_of(2, 288, 272, 16, 15, 0),
                             shape_of(3, 496, 304, 7, 7, 1)};

Tensor images(const cpu::Images& i) {
  return Tensor({DType::Float32, {i.n, i.height, i.width, i.channels}});
}

/// x, w and y of a convolution, with random values except for the result.
struct Tensors {
  Tensor x, w, y;
  Tensors(const ConvShape& s, ConvResult result)
      : x(images(s.x)), w({DType::Float32, {s.y.channels, s.x.channels, 3, 3}}), y(images(s.y)) {
    std::mt19937_64 random(kSeed);
    for (Tensor* t : {&x, &w, &y}) *t = test::random_tensor(t->type(), random);
    of(result) = Tensor(of(result).type());
  }
  Tensor& of(ConvResult result) {
    return result == ConvResult::Output ? y : result == ConvResult::InputGrad ? x : w;
  }
};

template <class Conv>
Tensor made(const Conv& conv, ConvResult result, Tensors t) {
  Tensor scratch({DType::Int8, {std::max<std::int64_t>(1, conv.scratch_bytes())}});
  conv.run(t.x.data(), t.w.data(), t.y.data(), scratch.data());
  EXPECT_TRUE(scratch.guards_hold() && t.x.guards_hold() && t.w.guards_hold() && t.y.guards_hold());
  return t.of(result);
}

TEST(Winograd, GivesWhatADirectConvolutionGives) {
  for (const ConvShape& s : kShapes)
    for (const ConvResult result : kResults) {
      ASSERT_TRUE(Winograd::fits(s));
      const Tensors t(s, result);
      const DnnlConv direct(s, result, Layout::ChannelsLast, DType::Float32);
      EXPECT_LE(relative_difference(made(Winograd(s, result, DType::Float32), result, t).values(),
                                    made(direct, result, t).values()),
                2e-6)
          << s.x.n << " images of " << s.x.channels << " channels, result " << int(result)
          << ", seed " << kSeed;
    }
}

// Values are read and written in bfloat16. The arithmetic in between is that of float32.
TEST(Winograd, RoundsBfloat16WhereItStoresAlone) {
  for (const ConvShape& s : kShapes)
    for (const ConvResult result : kResults) {
      Tensors narrow(s, result);
      for (Tensor* t : {&narrow.x, &narrow.w, &narrow.y}) *t = t->converted(DType::BFloat16);
      if (result == ConvResult::WeightGrad) narrow.w = narrow.w.converted(DType::Float32);
      Tensors wide = narrow;
      for (Tensor* t : {&wide.x, &wide.w, &wide.y}) *t = t->converted(DType::Float32);
      const Tensor got = made(Winograd(s, result, DType::BFloat16), result, narrow);
      const Tensor want = made(Winograd(s, result, DType::Float32), result, wide);
      EXPECT_TRUE(got.same_bits(want.converted(got.type().dtype)))
          << s.x.n << " images, result " << int(result) << ", seed " << kSeed;
    }
}

TEST(Winograd, GivesTheSameBitsUnderAnyNumberOfThreads) {
  const int before = omp_get_max_threads();
  for (const ConvShape& s : kShapes)
    for (const ConvResult result : kResults) {
      const Tensors t(s, result);
      omp_set_num_threads(1);
      const Winograd conv(s, result, DType::Float32);
      const Tensor one = made(conv, result, t);
      for (const int threads : {2, 5}) {
        omp_set_num_threads(threads);
        EXPECT_EQ(Winograd(s, result, DType::Float32).scratch_bytes(), conv.scratch_bytes());
        EXPECT_TRUE(made(conv, result, t).same_bits(one)) << threads << " threads";
      }
    }
  omp_set_num_threads(before);
}

TEST(Winograd, AnImagesResultIsItsOwn) {
  for (const ConvShape& s : kShapes)
    for (const ConvResult result : {ConvResult::Output, ConvResult::InputGrad}) {
      Tensors t(s, result);
      const Tensor all = made(Winograd(s, result, DType::Float32), result, t);
      ConvShape alone = s;
      alone.x.n = alone.y.n = 1;
      Tensors last(alone, result);
      const auto copy_last = [](Tensor& from, Tensor& to) {
        std::copy_n(from.as<float>() + from.count() - to.count(), to.count(), to.as<float>());
      };
      last.w = t.w;
      copy_last(t.x, last.x);
      copy_last(t.y, last.y);
      last.of(result) = Tensor(last.of(result).type());
      const Tensor one = made(Winograd(alone, result, DType::Float32), result, last);
      EXPECT_TRUE(std::equal(one.as<float>(), one.as<float>() + one.count(),
                             all.as<float>() + all.count() - one.count()));
    }
}

TEST(Winograd, LeavesToOthersWhatItCannotOrShouldNotDo) {
  ConvShape s = shape_of(2, 64, 64, 14, 14, 1);
  EXPECT_TRUE(Winograd::fits(s));
  const auto fits_with = [&](auto change) {
    ConvShape other = s;
    change(other);
    return Winograd::fits(other);
  };
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.w.stride = 2; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.w.dilation = 2; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.w.height = 1; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.w.padding = 3; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.groups = 2; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.x.channels = 72; }));
  EXPECT_FALSE(fits_with([](ConvShape& c) { c.y.channels = 16; }));
  EXPECT_FALSE(Winograd::fits(shape_of(2, 64, 64, 5, 5, 1)));  // 4 tiles of 16 for 25 results
}

}  // namespace
}  // namespace hetu
