// Operators that move elements without changing them.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

OpDef reshape() {
  return {
      .name = "reshape",
      .doc =
          "The same elements in row-major order in another shape. A dimension -k means k times the "
          "batch.",
      .inputs = {"x"},
      .attrs = {{"shape", Shape{}, true, "the new dimensions"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape& shape = a.attrs.integers("shape");
        check(symbolic_count(shape) == symbolic_count(a.inputs[0].shape), a,
              "{} does not have as many elements as x {}", to_string(shape),
              to_string(a.inputs[0]));
        return {{a.inputs[0].dtype, shape}};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("reshape", {g.dy[0]}, {{"shape", b.type(g.inputs[0]).shape}})};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}, .attrs = {{"shape", Shape{6}}}},
                  {.shapes = {{3, 5, 4}}, .attrs = {{"shape", Shape{15, 2, 2}}}},
                  {.shapes = {{1}}, .attrs = {{"shape", Shape{}}}},
                  {.shapes = {{4}}, .attrs = {{"shape", Shape{2, 2}}}, .dtypes = {DType::Int32}},
                  {.shapes = {{0, 3}}, .attrs = {{"shape", Shape{0}}}}},
  };
}

// Returns the inverse of a permutation of the axes, or an empty shape if `perm` isn't a
// permutation.
Shape inverse(const Shape& perm) {
  Shape out(perm.size(), -1);
  for (std::size_t i = 0; i < perm.size(); ++i) {
    const std::int64_t axis = perm[i];
    if (axis < 0 || axis >= static_cast<std::int64_t>(perm.size()) || out[axis] != -1) return {};
    out[axis] = static_cast<std::int64_t>(i);
  }
  return out;
}

OpDef transpose() {
  return {
      .name = "transpose",
      .doc = "The axes in another order: axis i of the result is axis perm[i] of x.",
      .inputs = {"x"},
      .attrs = {{"perm", Shape{}, true, "a permutation of the axes"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape& perm = a.attrs.integers("perm");
        const Shape& shape = a.inputs[0].shape;
        check(perm.size() == shape.size() && (perm.empty() || !inverse(perm).empty()), a,
              "perm must be a permutation of the {} axes of x {}, got {}", shape.size(),
              to_string(a.inputs[0]), to_string(perm));
        Shape out;
        for (const std::int64_t axis : perm) out.push_back(shape[axis]);
        return {{a.inputs[0].dtype, out}};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {
            b.apply("transpose", {g.dy[0]}, {{"perm", inverse(g.node.attrs.integers("perm"))}})};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}, .attrs = {{"perm", Shape{1, 0}}}},
                  {.shapes = {{2, 3, 5}}, .attrs = {{"perm", Shape{1, 2, 0}}}},
                  {.shapes = {{2, 3, 5, 7}}, .attrs = {{"perm", Shape{0, 2, 1, 3}}}},
                  {.shapes = {{1}}, .attrs = {{"perm", Shape{0}}}},
                  {.shapes = {{0, 3}}, .attrs = {{"perm", Shape{1, 0}}}}},
  };
}

const AttrSpec kAxis = {"axis", std::int64_t{0}, true, "axis, counted from 0"};
const AttrSpec kIndex = {"index", std::int64_t{0}, true, "position on the axis"};

Attrs at(std::int64_t axis, std::int64_t index) { return {{"axis", axis}, {"index", index}}; }

OpDef select() {
  return {
      .name = "select",
      .doc = "One position of one axis. The axis is removed.",
      .inputs = {"x"},
      .attrs = {kAxis, kIndex},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        Shape shape = a.inputs[0].shape;
        const std::int64_t axis = a.attrs.integer("axis");
        const std::int64_t index = a.attrs.integer("index");
        check(axis >= 0 && axis < static_cast<std::int64_t>(shape.size()) && shape[axis] >= 0, a,
              "axis must be a static axis of x {}, got {}", to_string(a.inputs[0]), axis);
        check(index >= 0 && index < shape[axis], a,
              "index must be in [0, {}) on axis {} of x {}, "
              "got {}",
              shape[axis], axis, to_string(a.inputs[0]), index);
        shape.erase(shape.begin() + axis);
        return {{a.inputs[0].dtype, shape}};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Attrs attrs = g.node.attrs;
        attrs.set("size", b.type(g.inputs[0]).shape[attrs.integer("axis")]);
        return {b.apply("select_grad", {g.dy[0]}, attrs)};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2, 3}}, .attrs = at(1, 2)},
                  {.shapes = {{3, 5, 7}}, .attrs = at(1, 0)},
                  {.shapes = {{1}}, .attrs = at(0, 0)},
                  {.shapes = {{2, 3}}, .attrs = at(1, 1), .dtypes = {DType::Int32}},
                  {.shapes = {{0, 3}}, .attrs = at(1, 1)}},
  };
}

OpDef select_grad() {
  const auto sized = [](std::int64_t axis, std::int64_t index, std::int64_t size) {
    Attrs attrs = at(axis, index);
    attrs.set("size", size);
    return attrs;
  };
  return {
      .name = "select_grad",
      .doc = "dy at one position of a new axis, 0 elsewhere.",
      .inputs = {"dy"},
      .outputs = {"dx"},
      .attrs = {kAxis, kIndex, {"size", std::int64_t{1}, true, "length of the new axis"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        Shape shape = a.inputs[0].shape;
        const std::int64_t axis = a.attrs.integer("axis");
        const std::int64_t index = a.attrs.integer("index");
        const std::int64_t size = a.attrs.integer("size");
        check_float(a);
        check(axis >= 0 && axis <= static_cast<std::int64_t>(shape.size()), a,
              "axis must be in [0, {}] for dy {}, got {}", shape.size(), to_string(a.inputs[0]),
              axis);
        check(index >= 0 && index < size, a, "index must be in [0, {}), got {}", size, index);
        shape.insert(shape.begin() + axis, size);
        return {float32(shape)};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{2}}, .attrs = sized(1, 2, 3)},
                  {.shapes = {{3, 7}}, .attrs = sized(1, 0, 5)},
                  {.shapes = {{}}, .attrs = sized(0, 0, 1)},
                  {.shapes = {{0}}, .attrs = sized(1, 1, 3)}},
  };
}

}  // namespace

std::vector<OpDef> shape() { return following({reshape(), transpose(), select(), select_grad()}); }

}  // namespace hetu::def
