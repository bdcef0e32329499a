// bfloat16: the upper half of a float32. What kernels load and store, and readers of files widen.
#pragma once
#include <bit>
#include <cstdint>

namespace hetu {

/// As it lies in memory. Arithmetic is float32's: it widens by itself, and is rounded by name.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  /// Rounds to the nearest, to even where two are as near; a NaN stays one, with its quiet bit set.
  constexpr explicit BFloat16(float x) : bits(rounded(x)) {}

  /// Rounds to one of the two beside it, up in size where the part that is cut off, of 65536, and
  /// these 16 bits make 65536 or more: of random ones the mean is x. What fits stays as it is.
  static constexpr BFloat16 by_chance(float x, std::uint32_t random) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    return of_bits(is_nan(word) ? quiet(word) : (word + random) >> 16);
  }

  constexpr operator float() const {  // NOLINT: exact, and what every kernel wants
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
