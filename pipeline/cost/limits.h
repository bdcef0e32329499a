// Bounds of speeds and bandwidths: what times and bytes are divided by stays away from 0, so that
// quotients stay finite. Other numbers have kLargestNumber (base/limits.h).
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
