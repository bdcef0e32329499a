// Tests the errors that ops/cpu/vector_math.h states, over dense grids against <cmath> in float64.
#include "ops/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace hetu::test {
namespace {

using cpu::VectorMath;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(VectorMath, ExpIsWithinItsBound) {
  double worst = 0;
  for (int i = -873000; i <= 887000; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    const double want = std::exp(double(x));
    worst = std::max(worst, std::fabs(VectorMath::exp(x) - want) / want);
  }
  EXPECT_LE(worst, 2e-7);
  EXPECT_EQ(VectorMath::exp(0.0f), 1.0f);
  EXPECT_EQ(VectorMath::exp(-10000.0f), 0.0f);
  EXPECT_EQ(VectorMath::exp(-kInfinity), 0.0f);
  EXPECT_EQ(VectorMath::exp(89.0f), kInfinity);
  EXPECT_EQ(VectorMath::exp(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(VectorMath::exp(kNaN)));
}

TEST(VectorMath, LogIsWithinItsBound) {
  double worst = 0, near_one = 0, one_more = 0;
  for (std::uint32_t bits = 1; bits < 0x7f800000; bits += 997) {  // includes subnormal numbers
    const float x = std::bit_cast<float>(bits);
    const double want = std::log(double(x)), error = std::fabs(VectorMath::log(x) - want);
    worst = std::max(worst, error / std::max(std::fabs(want), 1.0));
  }
  for (int i = 1; i <= 100000; ++i) {
    for (const float x :
         {1.0f + static_cast<float>(i) * 1e-6f, 1.0f - static_cast<float>(i) * 1e-6f}) {
      const double want = std::log(double(x));
      near_one = std::max(near_one, std::fabs(VectorMath::log(x) - want) / std::fabs(want));
    }
    for (const float x : {static_cast<float>(i) * 1e-5f, static_cast<float>(i) * 1e-9f}) {
      const double want = std::log1p(double(x));
      one_more = std::max(one_more, std::fabs(VectorMath::log1p(x) - want) / want);
    }
  }
  EXPECT_LE(worst, 2e-7);
  EXPECT_LE(near_one, 3e-7);
  EXPECT_LE(one_more, 3e-7);
  EXPECT_EQ(VectorMath::log(1.0f), 0.0f);
  EXPECT_EQ(VectorMath::log(0.0f), -kInfinity);
  EXPECT_EQ(VectorMath::log(-0.0f), -kInfinity);
  EXPECT_EQ(VectorMath::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(VectorMath::log(-1e-30f)));
  EXPECT_TRUE(std::isnan(VectorMath::log(-kInfinity)));
  EXPECT_TRUE(std::isnan(VectorMath::log(kNaN)));
  EXPECT_EQ(VectorMath::log1p(0.0f), 0.0f);
  EXPECT_TRUE(std::isnan(VectorMath::log1p(kNaN)));
}

TEST(VectorMath, ErfAndTanhAreWithinTheirBounds) {
  double erf_absolute = 0, erf_relative = 0, tanh_relative = 0;
  for (int i = 1; i <= 1200000; ++i) {
    for (const float x : {static_cast<float>(i) * 1e-5f, static_cast<float>(i) * -1e-5f}) {
      const double e = std::erf(double(x)), t = std::tanh(double(x));
      const double error = std::fabs(VectorMath::erf(x) - e);
      erf_absolute = std::max(erf_absolute, error);
      if (std::fabs(x) < 1) erf_relative = std::max(erf_relative, error / std::fabs(e));
      tanh_relative = std::max(tanh_relative, std::fabs(VectorMath::tanh(x) - t) / std::fabs(t));
    }
  }
  EXPECT_LE(erf_absolute, 2e-7);
  EXPECT_LE(erf_relative, 3e-7);
  EXPECT_LE(tanh_relative, 4e-7);
  EXPECT_EQ(VectorMath::erf(0.0f), 0.0f);
  EXPECT_EQ(VectorMath::tanh(0.0f), 0.0f);
  EXPECT_EQ(VectorMath::erf(kInfinity), 1.0f);
  EXPECT_EQ(VectorMath::tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::isnan(VectorMath::erf(kNaN)));
  EXPECT_TRUE(std::isnan(VectorMath::tanh(kNaN)));
}

}  // namespace
}  // namespace hetu::test
