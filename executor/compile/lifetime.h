// Static offsets for buffers with known lifetimes.
#pragma once
#include <cstdint>
#include <vector>

namespace hetu {

/// Alignment of every buffer, bytes.
inline constexpr std::int64_t kAlignment = 64;

inline std::int64_t align_up(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// A buffer that is alive from step `first` to step `last`, both included.
struct Lifetime {
  int first = 0;
  int last = 0;
  std::int64_t bytes = 0;
};

/// One that lies somewhere already.
struct Placed {
  Lifetime life;
  std::int64_t offset = 0;
};

/// Offsets below `limit` beside what lies there already, which buffers alive at the same step do
/// not overlap, nor each other; -1 of those for which there is no room. Largest first.
std::vector<std::int64_t> offsets_beside(std::vector<Placed> placed, std::int64_t limit,
                                         const std::vector<Lifetime>& lifetimes);

/// Offsets (aligned) such that buffers alive at the same step do not overlap; *total gets the bytes
/// needed. Largest first, each at the lowest offset that is free: within a few per cent of the best
/// on real graphs.
std::vector<std::int64_t> assign_offsets(const std::vector<Lifetime>& lifetimes,
                                         std::int64_t* total);

}  // namespace hetu
