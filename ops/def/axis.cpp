// Operators along one axis: slices, concatenation, padding, reversal, running sums, and largest
// elements.
#include <algorithm>

#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

AttrSpec axis_spec(std::int64_t fallback, bool required) {
  return {"axis", fallback, required, "axis, counted from the last if negative; not the batch"};
}

Attrs merged(Attrs attrs, const Attrs& more) {
  for (const auto& [key, value] : more.items()) attrs.set(key, value);
  return attrs;
}

// Returns the attribute `axis`, counted from 0. Checks that input 0 has this axis and that its
// length is static.
std::size_t static_axis(const InferArgs& a) {
  const Shape& shape = a.inputs[0].shape;
  const std::int64_t given = a.attrs.integer("axis");
  const std::int64_t axis = axis_from_first(given, shape.size());
  check(axis >= 0 && axis < static_cast<std::int64_t>(shape.size()), a,
        "{} {} has {} axes, there is no axis {}", input_name(a, 0), to_string(a.inputs[0]),
        shape.size(), given);
  check(shape[axis] >= 0, a, "axis {} of {} {} is the batch, which this operator cannot change",
        given, input_name(a, 0), to_string(a.inputs[0]));
  return static_cast<std::size_t>(axis);
}

std::int64_t length_of(const Builder& b, const GradArgs& g, std::size_t i) {
  const Shape& shape = b.type(g.inputs[i]).shape;
  return shape[axis_from_first(g.node.attrs.integer("axis"), shape.size())];
}

std::vector<TensorType> infer_concat(const InferArgs& a) {
  const std::size_t axis = static_axis(a);
  TensorType out = a.inputs[0];
  for (std::size_t i = 1; i < a.inputs.size(); ++i) {
    const TensorType& next = a.inputs[i];
    Shape fits = next.shape;
    if (fits.size() == out.shape.size()) fits[axis] = out.shape[axis];
    check(next.dtype == out.dtype && fits == out.shape && next.shape[axis] >= 0, a,
          "input {} must be {} like the first input, except on axis {}; got {}", i,
          to_string(a.inputs[0]), a.attrs.integer("axis"), to_string(next));
    out.shape[axis] += next.shape[axis];
    fits[axis] = out.shape[axis];
  }
  return {out};
}

OpDef concat() {
  return {
      .name = "concat",
      .doc = "All inputs, concatenated along an axis.",
      .inputs = {"a", "b"},
      .repeats = true,
      .attrs = {axis_spec(-1, false)},
      .infer = infer_concat,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Values dx;
        std::int64_t first = 0;
        for (std::size_t i = 0; i < g.inputs.size(); ++i) {
          const std::int64_t size = length_of(b, g, i);
          dx.push_back(if_wanted(
              g.wanted[i], b, "slice", {g.dy[0]},
              merged(along(g.node.attrs.integer("axis")), {{"first", first}, {"size", size}})));
          first += size;
        }
        return dx;
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}, {2, 5}}},
                  {.shapes = {{3, 1}, {3, 1}}},
                  {.shapes = {{3, 2, 17}, {3, 2, 1}}},
                  {.shapes = {{3, 2, 4}, {3, 1, 4}, {3, 3, 4}}, .attrs = along(1)},
                  {.shapes = {{3, 2}, {3, 2}, {3, 0}, {3, 1}}, .attrs = along(-1)},
                  {.shapes = {{2, 2, 3, 2}, {2, 1, 3, 2}}, .attrs = along(-3)},
                  {.shapes = {{2, 2}, {2, 3}}, .dtypes = {DType::Int32, DType::Int32}},
                  {.shapes = {{2, 0}, {2, 3}}},
                  {.shapes = {{0, 3}, {0, 2}}}},
  };
}

Attrs sliced(std::int64_t axis, std::int64_t first, std::int64_t size, std::int64_t step = 1) {
  return {{"axis", axis}, {"first", first}, {"size", size}, {"step", step}};
}

OpDef slice() {
  return {
      .name = "slice",
      .doc = "The positions first, first + step, and so on of an axis; size positions in all.",
      .inputs = {"x"},
      .attrs = {{"first", std::int64_t{0}, true, "first position on the axis"},
                {"size", std::int64_t{1}, true, "number of positions"},
                axis_spec(-1, false),
                {"step", std::int64_t{1}, false, "distance between positions, >= 1"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const std::size_t axis = static_axis(a);
        TensorType out = a.inputs[0];
        const std::int64_t first = a.attrs.integer("first"), size = a.attrs.integer("size");
        const std::int64_t step = a.attrs.integer("step");
        check(step >= 1, a, "step must be >= 1, got {}", step);
        const std::int64_t end = size > 0 ? first + (size - 1) * step + 1 : first;
        check(first >= 0 && size >= 0 && end <= out.shape[axis], a,
              "positions {} to {} are not all on axis {} of x {}", first, end,
              a.attrs.integer("axis"), to_string(a.inputs[0]));
        out.shape[axis] = size;
        return {out};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Attrs& n = g.node.attrs;
        return {b.apply("slice_grad", {g.dy[0]},
                        {{"first", n.integer("first")},
                         {"width", length_of(b, g, 0)},
                         {"axis", n.integer("axis")},
                         {"step", n.integer("step")}})};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}, .attrs = sliced(-1, 1, 2)},
                  {.shapes = {{1, 1}}, .attrs = sliced(-1, 0, 1)},
                  {.shapes = {{3, 5, 17}}, .attrs = sliced(-1, 3, 7)},
                  {.shapes = {{3, 5, 17}}, .attrs = sliced(-1, 3, 5, 3)},
                  {.shapes = {{3, 5, 2}}, .attrs = sliced(1, 1, 3)},
                  {.shapes = {{3, 5, 2}}, .attrs = sliced(-2, 0, 3, 2)},
                  {.shapes = {{2, 6}}, .attrs = sliced(1, 1, 2, 4), .dtypes = {DType::Int32}},
                  {.shapes = {{2, 3}}, .attrs = sliced(-1, 3, 0)},
                  {.shapes = {{0, 3}}, .attrs = sliced(-1, 1, 1)}},
  };
}

OpDef slice_grad() {
  const auto within = [](std::int64_t axis, std::int64_t first, std::int64_t width,
                         std::int64_t step = 1) {
    return Attrs{{"axis", axis}, {"first", first}, {"width", width}, {"step", step}};
  };
  return {
      .name = "slice_grad",
      .doc =
          "dy at the positions first, first + step, and so on of an axis of length width; 0 "
          "elsewhere.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = {{"first", std::int64_t{0}, true, "first position on the axis"},
                {"width", std::int64_t{1}, true, "length of the axis"},
                axis_spec(-1, false),
                {"step", std::int64_t{1}, false, "distance between positions, >= 1"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        const std::size_t axis = static_axis(a);
        Shape shape = a.inputs[0].shape;
        const std::int64_t first = a.attrs.integer("first"), width = a.attrs.integer("width");
        const std::int64_t step = a.attrs.integer("step"), size = shape[axis];
        check(first >= 0 && step >= 1 && width >= (size > 0 ? first + (size - 1) * step + 1 : 0), a,
              "dy {} does not fit on an axis of length {} from position {} on",
              to_string(a.inputs[0]), width, first);
        shape[axis] = width;
        return {float32(shape)};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 2}}, .attrs = within(-1, 1, 3)},
                  {.shapes = {{1, 1}}, .attrs = within(-1, 0, 1)},
                  {.shapes = {{3, 5, 7}}, .attrs = within(-1, 3, 17)},
                  {.shapes = {{3, 2, 7}}, .attrs = within(1, 1, 8, 4)},
                  {.shapes = {{0, 1}}, .attrs = within(-1, 1, 3)}},
  };
}

OpDef pad() {
  const auto padded = [](std::int64_t axis, std::int64_t before, std::int64_t after, double value) {
    return Attrs{{"axis", axis}, {"before", before}, {"after", after}, {"value", value}};
  };
  return {
      .name = "pad",
      .doc = "x padded with a constant before and after it along an axis.",
      .inputs = {"x"},
      .attrs = {axis_spec(-1, false),
                {"before", std::int64_t{0}, true, "number of positions before x, >= 0"},
                {"after", std::int64_t{0}, true, "number of positions after x, >= 0"},
                {"value", 0.0, false, "value of the padding"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        const std::size_t axis = static_axis(a);
        const std::int64_t before = a.attrs.integer("before"), after = a.attrs.integer("after");
        check(before >= 0 && after >= 0, a, "before and after must be >= 0, got {} and {}", before,
              after);
        Shape shape = a.inputs[0].shape;
        shape[axis] += before + after;
        return {float32(shape)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Attrs& n = g.node.attrs;
        return {b.apply("slice", {g.dy[0]},
                        sliced(n.integer("axis"), n.integer("before"), length_of(b, g, 0)))};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}, .attrs = padded(-1, 1, 2, 0)},
                  {.shapes = {{2, 3, 5}}, .attrs = padded(1, 0, 2, -1.5)},
                  {.shapes = {{1, 1}}, .attrs = padded(1, 0, 0, 1)},
                  {.shapes = {{2, 0}}, .attrs = padded(-1, 1, 1, 2)},
                  {.shapes = {{0, 3}}, .attrs = padded(-1, 1, 0, 0)}},
  };
}

OpDef flip() {
  return {
      .name = "flip",
      .doc = "x with the order of its positions reversed along an axis.",
      .inputs = {"x"},
      .attrs = {axis_spec(-1, false)},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        static_axis(a);
        return {a.inputs[0]};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("flip", {g.dy[0]}, along(g.node.attrs.integer("axis")))};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{3, 5, 17}}, .attrs = along(1)},
                  {.shapes = {{2, 6}}, .attrs = along(1), .dtypes = {DType::Int32}},
                  {.shapes = {{1, 1}}},
                  {.shapes = {{2, 0}}},
                  {.shapes = {{0, 3}}}},
  };
}

OpDef cumsum() {
  const auto sample = [](std::int64_t axis, std::int64_t reverse) {
    return Attrs{{"axis", axis}, {"reverse", reverse}};
  };
  return {
      .name = "cumsum",
      .doc = "The sum of each element and the elements before it along an axis, added in float64.",
      .inputs = {"x"},
      .attrs = {axis_spec(-1, false),
                {"reverse", std::int64_t{0}, false, "1: adds the elements after it instead"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        static_axis(a);
        return {a.inputs[0]};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Attrs& n = g.node.attrs;
        return {b.apply("cumsum", {g.dy[0]},
                        {{"axis", n.integer("axis")}, {"reverse", 1 - n.integer("reverse")}})};
      },
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{2, 3}}, .attrs = sample(-1, 1)},
                  {.shapes = {{3, 5, 17}}, .attrs = sample(1, 0)},
                  {.shapes = {{3, 5, 7}}, .attrs = sample(1, 1)},
                  {.shapes = {{1, 1}}},
                  {.shapes = {{2, 0}}}},
  };
}

OpDef argmax() {
  return {
      .name = "argmax",
      .doc =
          "The index of the largest element along an axis, as int32. The axis is removed. Of equal "
          "elements the first counts as the largest; a NaN counts as larger than all numbers.",
      .inputs = {"x"},
      .attrs = {axis_spec(-1, false)},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        const std::size_t axis = static_axis(a);
        Shape shape = a.inputs[0].shape;
        check(shape[axis] > 0, a, "axis {} of x {} has no elements", a.attrs.integer("axis"),
              to_string(a.inputs[0]));
        shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
        return {int32(shape)};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{3, 5, 17}}, .attrs = along(1)},
                  {.shapes = {{1, 1}}},
                  {.shapes = {{0, 3}}}},
  };
}

OpDef top_k() {
  const auto first = [](std::int64_t k) { return Attrs{{"k", k}}; };
  return {
      .name = "top_k",
      .doc =
          "The k largest elements along the last axis in descending order, and their indices as "
          "int32. Of equal elements the first counts as the largest; a NaN counts as larger than "
          "all numbers.",
      .inputs = {"x"},
      .outputs = {"values", "places"},
      .attrs = {{"k", std::int64_t{1}, true, "number of elements"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        Shape shape = a.inputs[0].shape;
        const std::int64_t k = a.attrs.integer("k");
        check(shape.back() >= 0, a,
              "the last axis of x {} is the batch, which this operator cannot change",
              to_string(a.inputs[0]));
        check(k >= 1 && k <= shape.back(), a, "k must be 1 to {} for x {}, got {}", shape.back(),
              to_string(a.inputs[0]), k);
        shape.back() = k;
        return {float32(shape), int32(shape)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("top_k_grad", {g.outputs[1], only_dy(g)},
                        {{"width", b.type(g.inputs[0]).shape.back()}})};
      },
      .flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{2, 3}}, .attrs = first(2)},
                  {.shapes = {{3, 5, 17}}, .attrs = first(17)},
                  {.shapes = {{2, 1}}, .attrs = first(1)},
                  {.shapes = {{0, 3}}, .attrs = first(2)}},
  };
}

OpDef top_k_grad() {
  const auto wide = [](std::int64_t width) { return Attrs{{"width", width}}; };
  const std::vector<DType> dtypes = {DType::Int32, DType::Float32};
  return {
      .name = "top_k_grad",
      .doc =
          "Zeros with a last axis of length width, to which each dy is added at its index in "
          "places.",
      .inputs = {"places", "dy"},
      .outputs = {"dx"},
      .attrs = {{"width", std::int64_t{1}, true, "length of the last axis"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Int32);
        check_dtype(a, 1, DType::Float32);
        check_rank(a, 0, 1);
        check_shape(a, 1, a.inputs[0].shape, to_fit(a, 0));
        Shape shape = a.inputs[0].shape;
        shape.back() = a.attrs.integer("width");
        return {float32(shape)};
      },
      .samples = {{.shapes = {{2, 2}, {2, 2}}, .attrs = wide(3), .dtypes = dtypes},
                  {.shapes = {{3, 5, 7}, {3, 5, 7}},
                   .attrs = wide(17),
                   .dtypes = dtypes,
                   .integers_below = 17},
                  {.shapes = {{2, 1}, {2, 1}}, .attrs = wide(3), .dtypes = dtypes},
                  {.shapes = {{0, 2}, {0, 2}}, .attrs = wide(3), .dtypes = dtypes}},
  };
}

}  // namespace

std::vector<OpDef> axis() {
  std::vector<OpDef> all = following({concat(), slice(), slice_grad(), pad(), flip()});
  for (OpDef& def : std::vector<OpDef>{cumsum(), argmax(), top_k(), top_k_grad()})
    all.push_back(std::move(def));
  return all;
}

}  // namespace hetu::def
