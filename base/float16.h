// float16, IEEE 754's binary16. Kernels load and store it. It has 11 bits of precision, and
// positive values from 6e-8 to 65504.
#pragma once
#include <bit>
#include <cstdint>

namespace hetu {

/// A float16 in memory. It converts to float implicitly, so arithmetic is in float32. Rounding back
/// is explicit.
struct Float16 {
  std::uint16_t bits;

  Float16() = default;
  /// Rounds to nearest, ties to even. Values from 65520 on become infinity. Values below 2^-14
  /// become multiples of 2^-24. A NaN stays a NaN, with its quiet bit set.
  constexpr explicit Float16(float x) : bits(rounded_bits(x)) {}

  // All cases are computed, and selections choose the result, so that loops vectorize. Shifting by
  // 13 bits aligns the fields with float32's. A normal number then needs the exponent bias, and
  // infinity and NaN need it twice. A subnormal number m * 2^-24 is computed as (2^-14 + m * 2^-24)
  // - 2^-14.
  constexpr operator float() const {  // NOLINT: exact, and meant to be implicit for kernels
    const std::uint32_t magnitude = (bits & 0x7fffu) << 13;
    const std::uint32_t normal = magnitude + kBias;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(
        std::bit_cast<float>(magnitude + kBias + (1u << 23)) - std::bit_cast<float>(0x38800000u));
    std::uint32_t wide = magnitude < (1u << 23) ? small : normal;
    wide = magnitude >= 0x7c00u << 13 ? normal + kBias : wide;
    return std::bit_cast<float>((bits & 0x8000u) << 16 | wide);
  }

 private:
  static constexpr std::uint16_t rounded_bits(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    const std::uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x1ffu);
    // The last bit of the sum stands for 2^-24, so the addition itself rounds.
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    // May carry to infinity.
    const std::uint32_t normal = (magnitude - kBias + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    std::uint32_t rounded = magnitude < 0x38800000u ? small : normal;
    rounded = magnitude >= 0x47800000u ? 0x7c00u : rounded;
    rounded = magnitude > 0x7f800000u ? nan : rounded;
    return static_cast<std::uint16_t>((word >> 16 & 0x8000u) | rounded);
  }

  // Difference of the exponent biases of float32 and float16.
  static constexpr std::uint32_t kBias = 112u << 23;
};

static_assert(sizeof(Float16) == 2);

}  // namespace hetu
