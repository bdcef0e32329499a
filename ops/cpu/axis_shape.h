// A tensor viewed as [outer, size, inner] around one of its axes.
#pragma once
#include <cstdint>

#include "base/shape.h"

namespace hetu::cpu {

/// The products of the dimensions before, at and after the axis.
struct Axis {
  std::int64_t outer = 1, size = 1, inner = 1;
};

/// Returns the tensor's view around `axis`, which counts from the last axis if it is negative.
inline Axis axis_of(const Shape& shape, std::int64_t axis) {
  const auto at = static_cast<std::size_t>(axis_from_first(axis, shape.size()));
  Axis a;
  for (std::size_t i = 0; i < shape.size(); ++i)
    (i < at ? a.outer : i == at ? a.size : a.inner) *= shape[i];
  return a;
}

}  // namespace hetu::cpu
