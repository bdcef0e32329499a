// Rounding modes for which C++ has no function.
#pragma once
#include <cmath>

namespace hetu::emulator {

/// Returns the nearest float32 that is not further from zero.
inline float toward_zero(double x) {
  const auto near = static_cast<float>(x);
  return std::fabs(double{near}) > std::fabs(x) ? std::nextafter(near, 0.0F) : near;
}
/// Returns the nearest float32 that is not above x.
inline float down(double x) {
  const auto near = static_cast<float>(x);
  return near > x ? std::nextafter(near, -HUGE_VALF) : near;
}

}  // namespace hetu::emulator
