// bfloat16, the upper half of a float32. Kernels load and store it, and file readers widen it.
#pragma once
#include <bit>
#include <cstdint>

namespace hetu {

/// A bfloat16 in memory. It converts to float implicitly, so arithmetic is in float32. Rounding
/// back is explicit.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  /// Rounds to nearest, ties to even. A NaN stays a NaN, with its quiet bit set.
  constexpr explicit BFloat16(float x) : bits(rounded(x)) {}

  /// Rounds stochastically to one of the two neighbours. `random` is a uniform number in
  /// [0, 65536). Rounds away from zero if the 16 bits that are cut off plus `random` are at least
  /// 65536, so the expected result is x. A value that bfloat16 can represent stays unchanged.
  static constexpr BFloat16 by_chance(float x, std::uint32_t random) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    return of_bits(is_nan(word) ? quiet(word) : (word + random) >> 16);
  }

  constexpr operator float() const {  // NOLINT: exact, and meant to be implicit for kernels
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t rounded(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t near = (word + 0x7fffu + (word >> 16 & 1u)) >> 16;
    return static_cast<std::uint16_t>(is_nan(word) ? quiet(word) : near);
  }
  static constexpr bool is_nan(std::uint32_t word) { return (word & 0x7fffffffu) > 0x7f800000u; }
  static constexpr std::uint32_t quiet(std::uint32_t nan) { return nan >> 16 | 0x40u; }
  static constexpr BFloat16 of_bits(std::uint32_t upper) {
    return std::bit_cast<BFloat16>(static_cast<std::uint16_t>(upper));
  }
};

static_assert(sizeof(BFloat16) == 2);

}  // namespace hetu
