// Bounds of speeds and bandwidths. They are divisors of times and bytes, so they must not be near 0
// if quotients are to be finite. Other numbers are bounded by kLargestNumber (base/limits.h).
#pragma once
#include <cmath>

namespace hetu {

inline constexpr double kLeastSpeed = 1e-9, kMostSpeed = 1e9;
inline constexpr double kLeastBandwidth = 1e-9;

/// Returns true for 0, which means unlimited, and for finite numbers from kLeastBandwidth on.
inline bool is_bandwidth(double bytes_per_time) {
  return bytes_per_time == 0 ||
         (std::isfinite(bytes_per_time) && bytes_per_time >= kLeastBandwidth);
}

}  // namespace hetu
