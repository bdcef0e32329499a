#include "executor/compile/lifetime.h"

#include <algorithm>
#include <numeric>

namespace hetu {
namespace {

bool overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

std::vector<std::int64_t> assign_offsets(const std::vector<Lifetime>& lifetimes,
                                         std::int64_t* total) {
  std::vector<int> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  std::vector<std::int64_t> offsets(lifetimes.size(), 0);
  std::vector<int> placed;
  *total = 0;
  for (const int i : order) {
    std::vector<std::pair<std::int64_t, std::int64_t>>
        taken;  // begin, end of what is alive beside i
    for (const int j : placed) {
      if (overlap(lifetimes[i], lifetimes[j])) {
        taken.push_back({offsets[j], offsets[j] + align_up(lifetimes[j].bytes)});
      }
    }
    std::sort(taken.begin(), taken.end());
    std::int64_t at = 0;
    for (const auto& [begin, end] : taken) {
      if (at + align_up(lifetimes[i].bytes) <= begin) break;
      at = std::max(at, end);
    }
    offsets[i] = at;
    placed.push_back(i);
    *total = std::max(*total, at + align_up(lifetimes[i].bytes));
  }
  return offsets;
}

}  // namespace hetu
