/// \file
/// One figure for many measurements of the same thing.
#pragma once

#include <cstddef>
#include <vector>

namespace hetu {

/// The middle one, of an even count the upper; 0 of none.
double median(std::vector<double> values);

/// What a kernel adds to a step: the mean of the times that are at most twice their median; 0 of
/// none. A step is a sum, so its expectation is a sum of means, which on a machine that slows down
/// in bursts lie well above the medians; times beyond, of a process that was stopped or of a first
/// touch of memory, are accidents.
double typical(const std::vector<double>& values);

/// Whether the first of so many measured steps warms up, and does not count.
constexpr bool first_warms_up(std::size_t steps) { return steps > 2; }

}  // namespace hetu
