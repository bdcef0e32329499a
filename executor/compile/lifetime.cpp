// Greedy placement by size: each buffer takes the lowest offset that no buffer in use at the same
// time occupies.
#include "executor/compile/lifetime.h"

#include <algorithm>
#include <numeric>

namespace hetu {
namespace {

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

std::vector<int> largest_first(const std::vector<Lifetime>& lifetimes) {
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  return order;
}

// Returns the lowest offset at which the buffer overlaps no placed buffer in use at the same time.
std::int64_t lowest_free(const Lifetime& life, const std::vector<Placed>& placed) {
  // Begin and end of the ranges in use at the same time.
  std::vector<std::pair<std::int64_t, std::int64_t>> taken;
  for (const Placed& p : placed)
    if (overlap(life, p.life)) taken.push_back({p.offset, p.offset + align_up(p.life.bytes)});
  std::sort(taken.begin(), taken.end());
  std::int64_t at = 0;
  for (const auto& [begin, end] : taken) {
    if (at + align_up(life.bytes) <= begin) break;
    at = std::max(at, end);
  }
  return at;
}

}  // namespace

std::vector<std::int64_t> offsets_beside(std::vector<Placed> placed, std::int64_t limit,
                                         const std::vector<Lifetime>& lifetimes) {
  std::vector<std::int64_t> offsets(lifetimes.size(), -1);
  for (const int i : largest_first(lifetimes)) {
    const std::int64_t at = lowest_free(lifetimes[i], placed);
    if (at + align_up(lifetimes[i].bytes) > limit) continue;
    offsets[i] = at;
    placed.push_back({lifetimes[i], at});
  }
  return offsets;
}

std::vector<std::int64_t> assign_offsets(const std::vector<Lifetime>& lifetimes,
                                         std::int64_t* total) {
  std::vector<std::int64_t> offsets(lifetimes.size(), 0);
  std::vector<Placed> placed;
  *total = 0;
  for (const int i : largest_first(lifetimes)) {
    const std::int64_t at = lowest_free(lifetimes[i], placed);
    offsets[i] = at;
    placed.push_back({lifetimes[i], at});
    *total = std::max(*total, at + align_up(lifetimes[i].bytes));
  }
  return offsets;
}

}  // namespace hetu
