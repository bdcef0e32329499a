// Lookup of the rows of a table by index.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

OpDef embedding_op() {
  const std::vector<DType> dtypes = {DType::Float32, DType::Int32};
  return {
      .name = "embedding",
      .doc = "The rows of table at the given ids. An id out of range is an error at run time.",
      .inputs = {"table", "ids"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Float32);
        check(a.inputs[0].shape.size() == 2 && !is_symbolic(a.inputs[0].shape), a,
              "table must be [rows, width], got {}", to_string(a.inputs[0]));
        check(a.inputs[1].dtype == DType::Int32, a,
              "ids must be int32, got {}; give the data object whole numbers, as in "
              "ids.astype(\"int32\"), or cast the value to int32",
              to_string(a.inputs[1]));
        Shape shape = a.inputs[1].shape;
        shape.push_back(a.inputs[0].shape[1]);
        return {float32(shape)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {if_wanted(g.wanted[0], b, "embedding_grad", {g.inputs[1], g.dy[0]},
                          {{"rows", b.type(g.inputs[0]).shape[0]}}),
                kNone};
      },
      .flops = [](const InferArgs&) { return std::int64_t{0}; },
      .samples = {{.shapes = {{5, 3}, {2, 4}}, .dtypes = dtypes, .integers_below = 5},
                  {.shapes = {{1, 1}, {1}}, .dtypes = dtypes, .integers_below = 1},
                  {.shapes = {{7, 17}, {33}}, .dtypes = dtypes, .integers_below = 7},
                  {.shapes = {{3, 2}, {0}}, .dtypes = dtypes}},
  };
}

OpDef embedding_grad() {
  const std::vector<DType> dtypes = {DType::Int32, DType::Float32};
  const auto rows_are = [](std::int64_t rows) { return Attrs{{"rows", rows}}; };
  return {
      .name = "embedding_grad",
      .doc =
          "Zeros [rows, width], to which the rows of dy are added at the given ids. Rows with the "
          "same id are added in ascending order.",
      .inputs = {"ids", "dy"},
      .outputs = {"dtable"},
      .attrs = {{"rows", std::int64_t{1}, true, "rows of the table"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Int32);
        check_dtype(a, 1, DType::Float32);
        check_rank(a, 1, 1);
        check(rows(a.inputs[1].shape) == a.inputs[0].shape, a,
              "dy must have the shape of ids {} and a width, got {}", to_string(a.inputs[0]),
              to_string(a.inputs[1]));
        check(a.attrs.integer("rows") >= 0, a, "rows must be >= 0, got {}",
              a.attrs.integer("rows"));
        return {float32({a.attrs.integer("rows"), a.inputs[1].shape.back()})};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[1]); },
      .samples =
          {{.shapes = {{2, 4}, {2, 4, 3}},
            .attrs = rows_are(5),
            .dtypes = dtypes,
            .integers_below = 5},
           {.shapes = {{1}, {1, 1}}, .attrs = rows_are(1), .dtypes = dtypes, .integers_below = 1},
           {.shapes = {{33}, {33, 17}},
            .attrs = rows_are(7),
            .dtypes = dtypes,
            .integers_below = 7},
           {.shapes = {{0}, {0, 2}}, .attrs = rows_are(3), .dtypes = dtypes}},
  };
}

OpDef positions() {
  return {
      .name = "positions",
      .doc = "The index of each element along the last dimension: [0, 1, 2, …] in every row.",
      .inputs = {"like"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_rank(a, 0, 1);
        check(a.inputs[0].shape.back() >= 0, a, "the last dimension must not be the batch, got {}",
              to_string(a.inputs[0]));
        return {int32(a.inputs[0].shape)};
      },
      .flops = [](const InferArgs&) { return std::int64_t{0}; },
      .samples = {{.shapes = {{2, 5}}, .dtypes = {DType::Int32}},
                  {.shapes = {{3, 2, 7}}},
                  {.shapes = {{1}}, .dtypes = {DType::Int32}},
                  {.shapes = {{0, 3}}, .dtypes = {DType::Int32}}},
  };
}

}  // namespace

std::vector<OpDef> embedding() { return {embedding_op(), embedding_grad(), positions()}; }

}  // namespace hetu::def
