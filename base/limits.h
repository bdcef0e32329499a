// Limits of the numbers that users give. They are checked where the numbers enter: options, files,
// shapes.
#pragma once
#include <cstdint>
#include <string>

#include "base/shape.h"

namespace hetu {

/// The largest number that an option or a file may hold. Times, bytes, rates and counts of real
/// machines are far below it. Sums and products of a few such numbers stay finite in a double.
/// Milliseconds up to this limit fit into 64 bits as microseconds.
inline constexpr double kLargestNumber = 1e15;

/// The largest number of elements of a tensor. It exceeds the memory of any machine, and sums of
/// the bytes of many such tensors fit into 64 bits.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 44;

/// Returns true if the product of the dimensions other than 0 is at most kMostElements for a batch
/// of 1. Then no product or sum of some of the dimensions overflows.
bool is_size(const Shape& shape);

/// Throws InvalidArgument unless is_size(shape). The message begins with `what`.
void check_size(const std::string& what, const Shape& shape);

}  // namespace hetu
