// A bit mixer for random draws that must depend on their arguments only, not on the order of draws.
#pragma once
#include <cstdint>

namespace hetu {

// 2^64 divided by the golden ratio.
inline constexpr std::uint64_t kMixStep = 0x9E3779B97F4A7C15ULL;

/// Returns the output of SplitMix64 for the state `x`. Every bit of x affects every bit of the
/// result. Source: Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators",
/// figure 16.
constexpr std::uint64_t mix(std::uint64_t x) {
  x += kMixStep;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace hetu
