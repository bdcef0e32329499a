// Cutting a chain of blocks into stages.
#pragma once
#include <vector>

namespace hetu {

/// First block of each stage such that the most expensive stage costs as little as possible; of
/// equal cuts, the one whose later stages are the lighter. Throws InvalidArgument, naming both
/// numbers, unless 1 <= stages <= blocks.
std::vector<int> balance_blocks(const std::vector<double>& block_costs, int stages);

}  // namespace hetu
