/// One figure for many measurements of the same quantity.
#pragma once

#include <cstddef>
#include <vector>

namespace hetu {

/// Returns the median; of an even number of values the upper one of the two in the middle. Returns
/// 0 for an empty list.
double median(std::vector<double> values);

/// Returns what a kernel adds to the time of a step: the mean of the times that are at most twice
/// their median. Returns 0 for an empty list. A step is a sum, so its expectation is a sum of
/// means. On a machine that slows down in bursts, means are well above medians. Larger times are
/// outliers, such as those of a process that was stopped or of a first access to memory.
double typical(const std::vector<double>& values);

/// Returns true if the first of `steps` measured steps is a warm-up that does not count.
constexpr bool first_warms_up(std::size_t steps) { return steps > 2; }

}  // namespace hetu
