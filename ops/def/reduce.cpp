// Sums of all elements, of rows and of the last axis, and the expansions that are their transposes.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

OpDef sum() {
  return {
      .name = "sum",
      .doc = "The sum of all elements as a scalar, added in order in float64.",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        return {float32({})};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("expand", {g.dy[0], g.inputs[0]})};
      },
      .flops = input_elements,
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{1}}},
                  {.shapes = {{}}},
                  {.shapes = {{3, 5, 7}}},
                  {.shapes = {{0}}}},
  };
}

OpDef expand() {
  return {
      .name = "expand",
      .doc =
          "The scalar s in every element of a tensor with the shape of like. The values of like "
          "are not read.",
      .inputs = {"s", "like"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Float32);
        check_shape(a, 0, {}, "(a scalar)");
        return {float32(a.inputs[1].shape)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {if_wanted(g.wanted[0], b, "sum", {g.dy[0]}), kNone};
      },
      .samples = {{.shapes = {{}, {2, 3}}},
                  {.shapes = {{}, {}}},
                  {.shapes = {{}, {3, 1, 5}}},
                  {.shapes = {{}, {0}}}},
  };
}

OpDef sum_rows() {
  return {
      .name = "sum_rows",
      .doc =
          "The sum of all rows, which is a vector of the length of the last axis. Rows are added "
          "in ascending order.",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        return {float32({a.inputs[0].shape.back()})};
      },
      .flops = input_elements,
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{1, 1}}},
                  {.shapes = {{3, 5, 7}}},
                  {.shapes = {{4}}},
                  {.shapes = {{0, 3}}}},
      .narrow = {NarrowArgs::Rule::Follows, {}, {0}},
  };
}

void check_static_last(const InferArgs& a, std::size_t i) {
  check_rank(a, i, 1);
  check(a.inputs[i].shape.back() >= 0, a, "the last axis of {} must not be the batch, got {}",
        input_name(a, i), to_string(a.inputs[i]));
}

OpDef sum_last() {
  return {
      .name = "sum_last",
      .doc = "The sum along the last axis, which is removed; added in ascending order in float64.",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_static_last(a, 0);
        return {float32(rows(a.inputs[0].shape))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("expand_last", {g.dy[0]}, {{"size", b.type(g.inputs[0]).shape.back()}})};
      },
      .flops = input_elements,
      .samples = {{.shapes = {{2, 3}}},
                  {.shapes = {{1, 1}}},
                  {.shapes = {{4}}},
                  {.shapes = {{3, 5, 17}}},
                  {.shapes = {{0, 3}}}},
  };
}

OpDef expand_last() {
  const auto sized = [](std::int64_t size) { return Attrs{{"size", size}}; };
  return {
      .name = "expand_last",
      .doc = "Each element of x, repeated along a new last axis.",
      .inputs = {"x"},
      .attrs = {{"size", std::int64_t{1}, true, "length of the new axis"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check(a.attrs.integer("size") >= 0, a, "size must be >= 0, got {}",
              a.attrs.integer("size"));
        Shape shape = a.inputs[0].shape;
        shape.push_back(a.attrs.integer("size"));
        return {float32(shape)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("sum_last", {g.dy[0]})};
      },
      .samples = {{.shapes = {{2}}, .attrs = sized(3)},
                  {.shapes = {{1}}, .attrs = sized(1)},
                  {.shapes = {{3, 5}}, .attrs = sized(17)},
                  {.shapes = {{0}}, .attrs = sized(3)}},
      .narrow = {NarrowArgs::Rule::Follows},
  };
}

}  // namespace

std::vector<OpDef> reduce() { return {sum(), expand(), sum_rows(), sum_last(), expand_last()}; }

}  // namespace hetu::def
