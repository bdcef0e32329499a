// The one mixer of bits for draws that must be functions of their arguments, not of an order.
#pragma once
#include <cstdint>

namespace hetu {

inline constexpr std::uint64_t kMixStep = 0x9E3779B97F4A7C15ULL;  // 2^64 over the golden ratio

/// One output of SplitMix64 for the state `x`: every bit of x moves every bit of the result.
/// Source: Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators", figure 16.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += kMixStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace hetu
