// Shapes with one symbolic batch axis. A dimension >= 0 is static. A dimension -k stands for k
// times the batch size, so [batch, 128, 768] reshaped to rows is [-128, 768]. The batch is bound to
// a number when a stage is compiled.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

using Shape = std::vector<std::int64_t>;

/// The batch dimension itself: one times the batch size.
inline constexpr std::int64_t kBatch = -1;

/// Returns a shape as text: "[B, 128, 768]", or "[128B, 768]" for a multiple of the batch.
std::string to_string(const Shape& shape);

/// Returns true if a dimension depends on the batch.
bool is_symbolic(const Shape& shape);

/// Returns the shape with every -k replaced by k * batch.
Shape bind_batch(const Shape& shape, std::int64_t batch);

/// Returns the number of elements of a bound shape (1 for a scalar). Throws InvalidArgument if the
/// shape is symbolic or has more than 2^44 elements.
std::int64_t element_count(const Shape& shape);

/// Returns the axis counted from the first. A negative axis counts from the last (-1), as in NumPy.
inline std::int64_t axis_from_first(std::int64_t axis, std::size_t rank) {
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}

}  // namespace hetu
