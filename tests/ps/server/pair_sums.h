// The order in which tests expect the pushes of a round to be added.
#pragma once
#include <bit>
#include <cstddef>
#include <span>
#include <vector>

namespace hetu::ps {

/// Returns ((0 + 1) + (2 + 3)) + 4: the largest power of two of terms that is less than all of
/// them, and the rest. `terms` is not empty, and all terms have the same length.
inline std::vector<float> sum_in_pairs(std::span<const std::vector<float>> terms) {
  if (terms.size() == 1) return terms[0];
  const std::size_t left = std::bit_floor(terms.size() - 1);
  std::vector<float> sum = sum_in_pairs(terms.first(left));
  const std::vector<float> right = sum_in_pairs(terms.subspan(left));
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

}  // namespace hetu::ps
