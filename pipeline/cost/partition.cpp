#include "pipeline/cost/partition.h"

#include <algorithm>
#include <limits>

#include "graph/base/error.h"

namespace hetu {

// best[s][b]: least possible cost of the most expensive of s stages over the first b blocks.
std::vector<int> balance_blocks(const std::vector<double>& block_costs, int stages) {
  const int blocks = static_cast<int>(block_costs.size());
  require(
      stages >= 1 && stages <= blocks,
      "{} stages do not fit: the model's cut-points give {} blocks, so 1 to {} stages are possible",
      stages, blocks, blocks);
  std::vector<double> before(blocks + 1, 0);
  for (int b = 0; b < blocks; ++b) before[b + 1] = before[b] + block_costs[b];
  const double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(blocks + 1, kNever));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(blocks + 1, 0));
  best[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int b = s; b <= blocks; ++b) {
      for (int c = s - 1; c < b; ++c) {
        const double cost = std::max(best[s - 1][c], before[b] - before[c]);
        if (cost <= best[s][b]) {
          best[s][b] = cost;
          cut[s][b] = c;
        }
      }
    }
  }
  std::vector<int> first(stages);
  for (int s = stages, b = blocks; s > 0; --s) {
    b = cut[s][b];
    first[s - 1] = b;
  }
  return first;
}

}  // namespace hetu
