#include "ops/def/broadcast.h"

#include <fmt/format.h>

#include <algorithm>

namespace hetu::def {
namespace {

std::int64_t rank_of(const Shape& shape) { return static_cast<std::int64_t>(shape.size()); }

// Returns the length of axis i, counted from the last one. Axes that the shape doesn't have count
// as 1.
std::int64_t from_last(const Shape& shape, std::size_t i) {
  return i < shape.size() ? shape[shape.size() - 1 - i] : 1;
}

// Returns text such as "5", "B" or "2B".
std::string length(std::int64_t dim) {
  const std::string text = to_string(Shape{dim});
  return text.substr(1, text.size() - 2);
}

}  // namespace

Shape broadcast_inputs(const InferArgs& a, std::size_t first) {
  Shape out;
  for (std::size_t i = first; i < a.inputs.size(); ++i) {
    const Shape& other = a.inputs[i].shape;
    Shape joined(std::max(out.size(), other.size()));
    for (std::size_t k = 0; k < joined.size(); ++k) {
      const std::int64_t x = from_last(out, k), y = from_last(other, k);
      // Finds the input that determined the length so far, for the message.
      std::size_t of = first;
      while (of < i && from_last(a.inputs[of].shape, k) != x) ++of;
      check(x == y || x == 1 || y == 1, a,
            "{} {} and {} {} do not broadcast: {} and {} on axis {} from the last; they must be "
            "equal, or one of them 1",
            input_name(a, of), to_string(a.inputs[of]), input_name(a, i), to_string(a.inputs[i]),
            length(x), length(y), k + 1);
      joined[joined.size() - 1 - k] = x == 1 ? y : x;
    }
    out = std::move(joined);
  }
  return out;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (std::size_t k = 0; k < from.size(); ++k) {
    const std::int64_t dim = from_last(from, k);
    if (dim != 1 && dim != from_last(to, k)) return false;
  }
  return true;
}

ValueId sum_to(Builder& b, ValueId dy, const Shape& shape) {
  const Shape from = b.type(dy).shape;
  if (from == shape) return dy;
  const std::size_t missing = from.size() - shape.size();
  Shape axes;
  bool within = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool repeated = i >= missing && shape[i - missing] == 1 && from[i] != 1;
    within = within || repeated;
    if (i < missing || repeated) axes.push_back(static_cast<std::int64_t>(i));
  }
  const std::int64_t keep = missing == 0 ? 1 : 0;
  const ValueId sum = b.apply("reduce_sum", {dy}, {{"axes", axes}, {"keep", keep}});
  return missing > 0 && within ? b.apply("reshape", {sum}, {{"shape", shape}}) : sum;
}

ValueId number(Builder& b, double value) {
  return b.apply("fill", {}, {{"shape", Shape{}}, {"value", value}});
}

std::vector<TensorType> infer_broadcast(const InferArgs& a) {
  check_float(a);
  return {float32(broadcast_inputs(a))};
}

ValueId with_axes(Builder& b, ValueId dy, const Shape& x, const Shape& axes) {
  const Shape kept = reduced_shape(x, axes, true);
  return b.type(dy).shape == kept ? dy : b.apply("reshape", {dy}, {{"shape", kept}});
}

Shape reduced_axes(const InferArgs& a) {
  const Shape& x = a.inputs[0].shape;
  const Shape& given = a.attrs.integers("axes");
  for (const std::int64_t axis : given) {
    check(axis >= -rank_of(x) && axis < rank_of(x), a, "x {} has {} axes, there is no axis {}",
          to_string(a.inputs[0]), x.size(), axis);
  }
  Shape axes = reduced_axes(a.attrs, x);
  check(std::adjacent_find(axes.begin(), axes.end()) == axes.end(), a,
        "axes [{}] name an axis of x {} twice", fmt::join(given, ", "), to_string(a.inputs[0]));
  return axes;
}

Shape reduced_axes(const Attrs& attrs, const Shape& x) {
  Shape axes = attrs.integers("axes");
  if (axes.empty()) {
    for (std::int64_t i = 0; i < rank_of(x); ++i) axes.push_back(i);
  }
  for (std::int64_t& axis : axes) axis = axis_from_first(axis, x.size());
  std::sort(axes.begin(), axes.end());
  return axes;
}

Shape reduced_shape(const Shape& x, const Shape& axes, bool keep) {
  Shape out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool gone =
        std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(i)) != axes.end();
    if (!gone) out.push_back(x[i]);
    if (gone && keep) out.push_back(1);
  }
  return out;
}

}  // namespace hetu::def
