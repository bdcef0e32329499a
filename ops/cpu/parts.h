// Division of an extent into parts.
#pragma once
#include <algorithm>
#include <cstdint>

namespace hetu::cpu {

/// Returns the number of parts of `size` that cover n.
inline std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

/// Rounds n up to a multiple of `unit`.
inline std::int64_t up(std::int64_t n, std::int64_t unit) { return parts(n, unit) * unit; }

/// Returns the size of equal parts of n: at most `most`, and a multiple of `unit`.
inline std::int64_t even(std::int64_t n, std::int64_t most, std::int64_t unit) {
  return up(parts(n, parts(n, std::max(most, unit))), unit);
}

}  // namespace hetu::cpu
