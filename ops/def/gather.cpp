// Rows along an axis, selected or accumulated by index.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

OpDef gather() {
  const DType f = DType::Float32, i = DType::Int32;
  return {
      .name = "gather",
      .doc =
          "The rows of x at the given ids along an axis. The axes before it are the same in x and "
          "ids: for axis 1, y[b, k] is x[b, ids[b, k]]. An id out of range is an error at run "
          "time.",
      .inputs = {"x", "ids"},
      .attrs = {{"axis", std::int64_t{0}, false, "axis of x, counted from the last if negative"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape &x = a.inputs[0].shape, &ids = a.inputs[1].shape;
        check_dtype(a, 1, DType::Int32);
        const std::int64_t given = a.attrs.integer("axis"), at = axis_from_first(given, x.size());
        check(at >= 0 && at < static_cast<std::int64_t>(x.size()), a,
              "x {} has {} axes, there is no axis {}", to_string(a.inputs[0]), x.size(), given);
        check(x[at] >= 0, a, "axis {} of x {} is the batch, which this operator cannot change",
              given, to_string(a.inputs[0]));
        const Shape before(x.begin(), x.begin() + at);
        check(ids.size() >= before.size() && Shape(ids.begin(), ids.begin() + at) == before, a,
              "the axes of ids {} must begin with {} {}", to_string(a.inputs[1]), to_string(before),
              to_fit(a, 0));
        Shape y = ids;
        y.insert(y.end(), x.begin() + at + 1, x.end());
        return {{a.inputs[0].dtype, y}};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const Shape& x = b.type(g.inputs[0]).shape;
        const std::int64_t axis = axis_from_first(g.node.attrs.integer("axis"), x.size());
        return {if_wanted(g.wanted[0], b, "scatter_add", {g.inputs[1], g.dy[0]},
                          {{"axis", axis}, {"size", x[axis]}}),
                kNone};
      },
      .flops = no_flops,
      .samples = {{.shapes = {{5, 3}, {kBatch, 4}}, .dtypes = {f, i}, .integers_below = 5},
                  {.shapes = {{kBatch, 5, 3}, {kBatch, 4}},
                   .attrs = along(1),
                   .dtypes = {f, i},
                   .integers_below = 5},
                  {.shapes = {{kBatch, 7}, {kBatch, 2, 3}},
                   .attrs = along(-1),
                   .dtypes = {f, i},
                   .integers_below = 7},
                  {.shapes = {{kBatch, 2, 4, 3}, {kBatch, 2}},
                   .attrs = along(2),
                   .dtypes = {f, i},
                   .integers_below = 4},
                  {.shapes = {{kBatch, 5}, {kBatch, 4}},
                   .attrs = along(1),
                   .dtypes = {i, i},
                   .integers_below = 5},
                  {.shapes = {{1, 1}, {kBatch}}, .dtypes = {f, i}, .integers_below = 1},
                  {.shapes = {{3, 2}, {kBatch, 0}}, .dtypes = {f, i}}},
  };
}

OpDef scatter_add() {
  const std::vector<DType> dtypes = {DType::Int32, DType::Float32};
  const auto sized = [](std::int64_t axis, std::int64_t size) {
    return Attrs{{"axis", axis}, {"size", size}};
  };
  return {
      .name = "scatter_add",
      .doc =
          "Zeros to which the rows of x are added at the given ids along an axis, in ascending "
          "order. The axes before it are the same in x and ids: for axis 1, y[b, ids[b, k]] += "
          "x[b, k].",
      .inputs = {"ids", "x"},
      .attrs = {{"size", std::int64_t{0}, true, "length of the axis"},
                {"axis", std::int64_t{0}, false, "axis of y, not negative"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape &ids = a.inputs[0].shape, &x = a.inputs[1].shape;
        check_dtype(a, 0, DType::Int32);
        check_dtype(a, 1, DType::Float32);
        const std::int64_t axis = a.attrs.integer("axis"), size = a.attrs.integer("size");
        const auto rank = static_cast<std::int64_t>(ids.size());
        check(axis >= 0 && axis <= rank, a, "axis must be 0 to {} for ids {}, got {}", rank,
              to_string(a.inputs[0]), axis);
        check(size >= 0, a, "size must be >= 0, got {}", size);
        check(x.size() >= ids.size() && Shape(x.begin(), x.begin() + rank) == ids, a,
              "the axes of x {} must begin with those of ids {}", to_string(a.inputs[1]),
              to_string(a.inputs[0]));
        Shape y(ids.begin(), ids.begin() + axis);
        y.push_back(size);
        y.insert(y.end(), x.begin() + rank, x.end());
        return {float32(y)};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {kNone, if_wanted(g.wanted[1], b, "gather", {g.dy[0], g.inputs[0]},
                                 {{"axis", g.node.attrs.integer("axis")}})};
      },
      .flops = [](const InferArgs& a) { return elements(a.inputs[1]); },
      .samples =
          {{.shapes = {{kBatch, 4}, {kBatch, 4, 3}},
            .attrs = sized(0, 5),
            .dtypes = dtypes,
            .integers_below = 5},
           {.shapes = {{kBatch, 4}, {kBatch, 4, 3}},
            .attrs = sized(1, 5),
            .dtypes = dtypes,
            .integers_below = 5},
           {.shapes = {{kBatch, 2, 3}, {kBatch, 2, 3}},
            .attrs = sized(1, 7),
            .dtypes = dtypes,
            .integers_below = 7},
           {.shapes = {{1}, {1, 1}}, .attrs = sized(0, 1), .dtypes = dtypes, .integers_below = 1},
           {.shapes = {{0}, {0, 2}}, .attrs = sized(0, 3), .dtypes = dtypes}},
  };
}

}  // namespace

std::vector<OpDef> gather_family() {
  OpDef picked = gather();
  picked.narrow.rule = NarrowArgs::Rule::Follows;
  return {picked, scatter_add()};
}

}  // namespace hetu::def
