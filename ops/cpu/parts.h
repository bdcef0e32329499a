// How an extent is cut into parts.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hetu::cpu {

/// How many parts of `size` n takes.
inline std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// n in whole units.
inline std::int64_t up(std::int64_t n, std::int64_t unit) { return parts(n, unit) * unit; }

/// The size of equal parts of n, none above `most`, in whole units.
inline std::int64_t even(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return up(parts(n, parts(n, std::max(most, unit))), unit);
}

}  // namespace hetu::cpu
