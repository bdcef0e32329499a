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

  constexpr operator float() const {  // NOLINT: exact, and what every kernel wants
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t rounded(float x) {
    const auto word = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t near = (word + 0x7fffu + (word >> 16 & 1u)) >> 16;
    const std::uint32_t nan = word >> 16 | 0x40u;
    return static_cast<std::uint16_t>((word & 0x7fffffffu) > 0x7f800000u ? nan : near);
  }
};

static_assert(sizeof(BFloat16) == 2);

}  // namespace hetu
