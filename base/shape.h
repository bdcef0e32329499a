// Shapes with one symbolic batch axis. A dimension >= 0 is static; a dimension -k stands for k
// times the batch size, so that [batch, 128, 768] reshaped to rows is [-128, 768]. Bound to a
// number when a stage is compiled.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

using Shape = std::vector<std::int64_t>;

/// The batch dimension itself: one times the batch size.
inline constexpr std::int64_t kBatch = -1;

/// "[B, 128, 768]"; "[128B, 768]" for a multiple of the batch.
std::string to_string(const Shape& shape);

/// True if some dimension depends on the batch.
bool is_symbolic(const Shape& shape);

/// Every -k replaced by k * batch.
Shape bind_batch(const Shape& shape, std::int64_t batch);

/// Product of the dimensions of a bound shape (1 for a scalar). Throws InvalidArgument if symbolic,
/// or past 2^44.
std::int64_t element_count(const Shape& shape);

/// An axis counted from the first, where a negative one counts from the last (-1), as in NumPy.
inline std::int64_t axis_from_first(std::int64_t axis, std::size_t rank) {
  return axis < 0 ? axis + static_cast<std::int64_t>(rank) : axis;
}

}  // namespace hetu
