// The errors that ops/cpu/vector_math.h states, over dense grids against <cmath> in float64.
#include "ops/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
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
