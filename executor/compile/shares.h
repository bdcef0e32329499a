// The division of a step's micro-batches among pipelines. Micro-batches are numbered over all
// pipelines, in the order of their samples.
#pragma once
#include <numeric>
#include <vector>

namespace hetu {

/// Returns the number of micro-batches of the pipelines before `pipeline`. `shares` has the number
/// of each pipeline; if it is empty, each has `micros`.
inline int micros_before(const std::vector<int>& shares, int micros, int pipeline) {
  return shares.empty() ? pipeline * micros
                        : std::accumulate(shares.begin(), shares.begin() + pipeline, 0);
}

}  // namespace hetu
