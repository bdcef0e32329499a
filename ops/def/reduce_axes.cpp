// Reductions over chosen axes, and broadcasting, which is their transpose.
#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const std::vector<AttrSpec> kReduced = {
    {"axes", Shape{}, false, "axes, counted from the last if negative; empty: all axes"},
    {"keep", std::int64_t{0}, false, "1: keeps the axes, with length 1"}};

Attrs over(const Shape& axes, std::int64_t keep = 0) { return {{"axes", axes}, {"keep", keep}}; }

std::vector<TensorType> infer_reduced(const InferArgs& a) {
  check_float(a);
  const std::int64_t keep = a.attrs.integer("keep");
  check(keep == 0 || keep == 1, a, "keep must be 0 or 1, got {}", keep);
  return {float32(reduced_shape(a.inputs[0].shape, reduced_axes(a), keep == 1))};
}

// Rejects reductions over the batch. Only a sum over the batch is the sum of its micro-batches'
// results.
std::vector<TensorType> infer_without_batch(const InferArgs& a) {
  std::vector<TensorType> out = infer_reduced(a);
  for (const std::int64_t axis : reduced_axes(a)) {
    check(a.inputs[0].shape[axis] >= 0, a,
          "axis {} of x {} is the batch, which is split into micro-batches; only sums over it are "
          "possible (hetu.step_mean computes a mean over the step)",
          axis, to_string(a.inputs[0]));
  }
  return out;
}

// Broadcasts a value with length 1 on the reduced axes to x's shape.
ValueId spread(Builder& b, ValueId kept, ValueId x) {
  return b.apply("broadcast_to", {kept}, {{"shape", b.type(x).shape}});
}

// Returns the number of elements that are reduced to one element of the result.
std::int64_t count_of(const Builder& b, const GradArgs& g) {
  const Shape& x = b.type(g.inputs[0]).shape;
  std::int64_t count = 1;
  for (const std::int64_t axis : reduced_axes(g.node.attrs, x)) count *= x[axis];
  return count;
}

ValueId kept(Builder& b, const GradArgs& g, ValueId reduced) {
  const Shape x = b.type(g.inputs[0]).shape;
  return with_axes(b, reduced, x, reduced_axes(g.node.attrs, x));
}

// Returns samples. With `of_nothing`, also two that reduce an axis of length 0, for reductions that
// have a result there.
std::vector<Sample> samples(bool of_nothing) {
  std::vector<Sample> all = {{.shapes = {{2, 3}}, .attrs = over({1})},
                             {.shapes = {{2, 3}}, .attrs = over({-1}, 1)},
                             {.shapes = {{1, 1}}, .attrs = over({1})},
                             {.shapes = {{2, 3, 5}}, .attrs = over({1})},
                             {.shapes = {{3, 5, 17}}, .attrs = over({1, 2})},
                             {.shapes = {{2, 3, 5, 7}}, .attrs = over({3, 1}, 1)},
                             {.shapes = {{0, 3}}, .attrs = over({1})}};
  if (of_nothing) {
    all.push_back({.shapes = {{2, 0}}, .attrs = over({1})});
    all.push_back({.shapes = {{2, 0, 3}}, .attrs = over({1}, 1)});
  }
  return all;
}

OpDef reduction(const std::string& name, const std::string& doc, bool of_nothing) {
  return {.name = name,
          .doc = doc,
          .inputs = {"x"},
          .attrs = kReduced,
          .infer = infer_without_batch,
          .flops = input_elements,
          .samples = samples(of_nothing)};
}

OpDef reduce_sum() {
  OpDef def = reduction(
      "reduce_sum",
      "The sum over axes, added in float64. A sum over the batch is the sum over a micro-batch.",
      true);
  def.infer = infer_reduced;
  def.samples.push_back({.shapes = {{2, 3}}, .attrs = over({0})});
  def.samples.push_back({.shapes = {{2, 3, 5}}, .attrs = over({0, 2}, 1)});
  def.samples.push_back({.shapes = {{2, 3}}, .attrs = over({})});
  def.samples.push_back({.shapes = {{}}, .attrs = over({})});
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    return {spread(b, kept(b, g, g.dy[0]), g.inputs[0])};
  };
  return def;
}

OpDef reduce_mean() {
  OpDef def =
      reduction("reduce_mean",
                "The mean over axes, added in float64; NaN where there are no elements.", false);
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId part =
        b.apply("scale", {g.dy[0]}, {{"factor", 1.0 / static_cast<double>(count_of(b, g))}});
    return {spread(b, kept(b, g, part), g.inputs[0])};
  };
  return def;
}

// Elements that equal the extreme share its gradient evenly.
Values extreme_grad(Builder& b, const GradArgs& g) {
  const ValueId at = b.apply("equal", {g.inputs[0], kept(b, g, g.outputs[0])});
  const Shape axes = reduced_axes(g.node.attrs, b.type(g.inputs[0]).shape);
  const ValueId ones = b.apply("cast", {at}, {{"dtype", std::string("float32")}});
  const ValueId count =
      axes.empty() ? ones
                   : b.apply("reduce_sum", {ones}, {{"axes", axes}, {"keep", std::int64_t{1}}});
  // If the reduced elements contain NaN, no element equals the result, and the count is 0. Then 0 *
  // (dy / 0) makes all their gradients NaN.
  return {b.apply("mul", {ones, b.apply("div", {kept(b, g, g.dy[0]), count})})};
}

void check_some(const InferArgs& a) {
  for (const std::int64_t axis : reduced_axes(a)) {
    check(a.inputs[0].shape[axis] != 0, a, "axis {} of x {} has no elements", axis,
          to_string(a.inputs[0]));
  }
}

OpDef extreme(const std::string& name, const std::string& doc) {
  OpDef def = reduction(name, doc, false);
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    std::vector<TensorType> out = infer_without_batch(a);
    check_some(a);
    return out;
  };
  def.grad = extreme_grad;
  return def;
}

OpDef reduce_variance() {
  OpDef def = reduction("reduce_variance",
                        "The variance over axes: the sum of squared distances from the mean, "
                        "divided by the number of elements minus correction; added in float64.",
                        false);
  def.attrs.push_back(
      {"correction", std::int64_t{0}, false,
       "subtracted from the number of elements; 0 as in NumPy, whereas PyTorch's var uses 1"});
  def.samples.push_back(
      {.shapes = {{2, 5}}, .attrs = {{"axes", Shape{1}}, {"correction", std::int64_t{1}}}});
  def.flops = [](const InferArgs& a) { return 4 * elements(a.inputs[0]); };
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const Shape axes = reduced_axes(g.node.attrs, b.type(g.inputs[0]).shape);
    Attrs attrs = over(axes, 1);
    const ValueId mean = b.apply("reduce_mean", {g.inputs[0]}, attrs);
    const ValueId apart = b.apply("sub", {g.inputs[0], mean});
    const auto count = static_cast<double>(count_of(b, g) - g.node.attrs.integer("correction"));
    const ValueId part = b.apply("scale", {g.dy[0]}, {{"factor", 2 / count}});
    return {b.apply("mul", {apart, kept(b, g, part)})};
  };
  return def;
}

OpDef reduce_logsumexp() {
  OpDef def = reduction(
      "reduce_logsumexp",
      "log(sum(exp(x))) over axes without overflow; -infinity where there are no elements.", false);
  def.flops = [](const InferArgs& a) { return 10 * elements(a.inputs[0]); };
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId apart = b.apply("sub", {g.inputs[0], kept(b, g, g.outputs[0])});
    const ValueId slope = b.apply("exp", {apart});
    return {b.apply("mul", {slope, kept(b, g, g.dy[0])})};
  };
  return def;
}

OpDef broadcast_to() {
  const auto to = [](const Shape& shape) { return Attrs{{"shape", shape}}; };
  return {.name = "broadcast_to",
          .doc =
              "x repeated along new leading axes and along axes of length 1. In the shape, -k "
              "means k times the batch.",
          .inputs = {"x"},
          .attrs = {{"shape", Shape{}, true, "the dimensions of the result"}},
          .infer = [](const InferArgs& a) -> std::vector<TensorType> {
            const Shape& shape = a.attrs.integers("shape");
            check_float(a);
            check(broadcasts_to(a.inputs[0].shape, shape), a, "x {} does not broadcast to {}",
                  to_string(a.inputs[0]), to_string(shape));
            return {float32(shape)};
          },
          .grad = [](Builder& b, const GradArgs& g) -> Values {
            return {sum_to(b, g.dy[0], b.type(g.inputs[0]).shape)};
          },
          .flops = [](const InferArgs&) { return std::int64_t{0}; },
          .samples = {{.shapes = {{2, 3}}, .attrs = to({2, 3})},
                      {.shapes = {{3}}, .attrs = to({2, 3})},
                      {.shapes = {{}}, .attrs = to({2, 17})},
                      {.shapes = {{2, 1, 5}}, .attrs = to({2, 3, 5})},
                      {.shapes = {{1, 5, 1}}, .attrs = to({2, 3, 5, 7})},
                      {.shapes = {{1}}, .attrs = to({0})}},
          .narrow = {NarrowArgs::Rule::Follows}};
}

}  // namespace

std::vector<OpDef> reduce_axes() {
  return {reduce_sum(),
          reduce_mean(),
          extreme("reduce_max",
                  "The largest element over axes; NaN if any element is NaN. Equal elements share "
                  "the gradient evenly."),
          extreme("reduce_min",
                  "The smallest element over axes; NaN if any element is NaN. Equal elements share "
                  "the gradient evenly."),
          reduce_variance(),
          reduce_logsumexp(),
          broadcast_to()};
}

}  // namespace hetu::def
