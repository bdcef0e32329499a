// Bounds of the numbers that users give, checked where the numbers enter: options, files, shapes.
#pragma once
#include <cstdint>
#include <string>

#include "base/shape.h"

namespace hetu {

/// The largest number that an option or a file may give. The times, bytes, rates and counts of real
/// machines are far below it. Sums and products of a few such numbers stay finite in a double, and
/// milliseconds up to it fit into 64 bits as microseconds.
inline constexpr double kLargestNumber = 1e15;

/// The most elements of a tensor. It is beyond the memory of any machine, and sums of the bytes of
/// many such tensors fit into 64 bits.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 44;

/// Returns true if the dimensions other than 0 have a product of at most kMostElements with a batch
/// of 1. Then no product or sum of some of them overflows.
bool is_size(const Shape& shape);

/// Throws InvalidArgument, beginning with `what`, unless is_size(shape).
void check_size(const std::string& what, const Shape& shape);

}  // namespace hetu
