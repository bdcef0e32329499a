// exp, erf, tanh and log in float32 without branches or calls, so that loops over them can be
// vectorized at any width. The coefficients are Chebyshev fits computed with 40 digits. The stated
// error bounds are those that tests/ops/cpu/vector_math_test.cpp checks, over dense grids against
// <cmath> in float64.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/scalar_fns.h"

namespace hetu::cpu {

/// The vectorizable counterpart of fn::StdMath.
struct VectorMath {
  /// Relative error below 2e-7 where the result is normal. Returns 0 below -87.33 and infinity
  /// above 88.72. NaN stays NaN.
  static inline float exp(float x) {
    constexpr float kLog2e = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
    const float low = x < -87.33f ? -87.33f : x;
    const float in = low > 88.73f ? 88.73f : low;
    const float shifted = fma(in, kLog2e, kRound);
    const float n = shifted - kRound;
    const float r = fma(n, -kLn2Low, fma(n, -kLn2High, in));
    float p = 1.392626805e-3f;
    p = fma(p, r, 8.36324667e-3f);
    p = fma(p, r, 4.166655411e-2f);
    p = fma(p, r, 1.666657658e-1f);
    p = fma(p, r, 0.5f);
    p = fma(p * r, r, r) + 1.0f;
    // n is in [-126, 128]. Two factors are needed because 2^128 isn't a float32.
    const std::int32_t whole = std::bit_cast<std::int32_t>(shifted) - 0x4B400000;
    const std::int32_t half = whole >> 1;
    const float y = p * std::bit_cast<float>((half + 127) << 23) *
                    std::bit_cast<float>((whole - half + 127) << 23);
    return x < -87.33f ? 0.0f : y;
  }

  /// Absolute error below 2e-7; relative error below 3e-7 for |x| < 1.
  static inline float erf(float x) {
    const float t = std::fabs(x), s = x * x;
    float small = 7.875875063e-5f;
    small = fma(small, s, -8.016864287e-4f);
    small = fma(small, s, 5.189087423e-3f);
    small = fma(small, s, -2.685421201e-2f);
    small = fma(small, s, 1.128359472e-1f);
    small = fma(small, s, -3.761262667e-1f);
    small = fma(small, s, 1.128379166f);
    // 1 - exp(-q(t)). erfc(4) is below half a unit in the last place of 1.
    const float u = t > 4.0f ? 4.0f : t;
    float q = 1.327236181e-5f;
    q = fma(q, u, -3.169370225e-4f);
    q = fma(q, u, 3.432351381e-3f);
    q = fma(q, u, -2.260477224e-2f);
    q = fma(q, u, 1.032811176e-1f);
    q = fma(q, u, 6.391412576e-1f);
    q = fma(q, u, 1.125893652f);
    q = fma(q, u, 7.658977797e-4f);
    const float large = 1.0f - exp(-q);
    return t < 1.0f ? x * small : std::copysign(large, x);
  }

  /// Relative error below 4e-7.
  static inline float tanh(float x) {
    const float t = std::fabs(x), s = x * x;
    float small = 2.292744816e-3f;
    small = fma(small, s, -8.343945516e-3f);
    small = fma(small, s, 2.176891865e-2f);
    small = fma(small, s, -5.395925958e-2f);
    small = fma(small, s, 1.333330356e-1f);
    small = fma(small, s, -3.333333317e-1f);
    const float large = 1.0f - 2.0f / (exp(t + t) + 1.0f);
    return t < 0.625f ? fma(x * s, small, x) : std::copysign(large, x);
  }

  /// Error below 2e-7 * max(|result|, 1). For |x - 1| <= 0.1, the relative error is below 3e-7.
  /// Returns -infinity at 0 and NaN below. Source of the coefficients: Cephes' logf (Moshier 1992).
  static inline float log(float x) {
    // Scales a subnormal number by 2^25, which makes it normal.
    const bool subnormal = x < 1.17549435e-38f;
    const float scaled = subnormal ? x * 33554432.0f : x;
    // Unsigned, because the subtraction wraps around for negative x, whose result is NaN anyway.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
    // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
    const std::int32_t e = static_cast<std::int32_t>(bits - 0x3F3504F3U) >> 23;
    const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23)) - 1.0f;
    const float exponent = static_cast<float>(e) - (subnormal ? 25.0f : 0.0f);
    float p = 7.0376836292e-2f;
    p = fma(p, m, -1.1514610310e-1f);
    p = fma(p, m, 1.1676998740e-1f);
    p = fma(p, m, -1.2420140846e-1f);
    p = fma(p, m, 1.4249322787e-1f);
    p = fma(p, m, -1.6668057665e-1f);
    p = fma(p, m, 2.0000714765e-1f);
    p = fma(p, m, -2.4999993993e-1f);
    p = fma(p, m, 3.3333331174e-1f);
    const float square = m * m;
    float tail = p * m * square;
    tail = fma(exponent, -2.12194440e-4f, tail);
    tail = fma(square, -0.5f, tail);
    const float y = fma(exponent, 0.693359375f, m + tail);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float above = x == kInfinity ? kInfinity : y;
    const float from_zero = x == 0.0f ? -kInfinity : above;
    return x >= 0.0f ? from_zero : std::numeric_limits<float>::quiet_NaN();
  }

  /// For x in [0, 1], as softplus calls it: relative error below 3e-7.
  static inline float log1p(float x) {
    const float near = 1.0f + x, lost = x - (near - 1.0f);
    return x != x ? x : log(near) + lost / near;
  }

 private:
  static inline float fma(float a, float b, float c) { return fn::multiply_add(a, b, c); }
};

}  // namespace hetu::cpu
