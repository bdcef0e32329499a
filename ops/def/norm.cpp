// Layer normalization and its gradients.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

// Checks the row statistics (inputs `mean` and `mean` + 1), and that dy (the next input) has the
// shape of input 0.
void check_statistics_and_dy(const InferArgs& a, std::size_t mean) {
  check_shape(a, mean, rows(a.inputs[0].shape), to_fit(a, 0));
  check_shape(a, mean + 1, rows(a.inputs[0].shape), to_fit(a, 0));
  check_shape(a, mean + 2, a.inputs[0].shape, to_fit(a, 0));
}

OpDef layer_norm() {
  return {
      .name = "layer_norm",
      .doc =
          "gamma * (x - mean) / sqrt(variance + eps) + beta along the last axis; the variance is "
          "the biased one, rstd is 1 / sqrt(variance + eps).",
      .inputs = {"x", "gamma", "beta"},
      .outputs = {"y", "mean", "rstd"},
      .attrs = {{"eps", 1e-12, false, "added to the variance"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        check_shape(a, 1, {a.inputs[0].shape.back()}, to_fit(a, 0));
        check_shape(a, 2, {a.inputs[0].shape.back()}, to_fit(a, 0));
        check(a.attrs.real("eps") >= 0, a, "eps must be >= 0, got {}", a.attrs.real("eps"));
        const TensorType statistics = float32(rows(a.inputs[0].shape));
        return {a.inputs[0], statistics, statistics};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const ValueId x = g.inputs[0];
        const ValueId mean = g.outputs[1];
        const ValueId rstd = g.outputs[2];
        const ValueId dy = only_dy(g);
        return {
            if_wanted(g.wanted[0], b, "layer_norm_input_grad", {x, g.inputs[1], mean, rstd, dy}),
            if_wanted(g.wanted[1], b, "layer_norm_gamma_grad", {x, mean, rstd, dy}),
            if_wanted(g.wanted[2], b, "sum_rows", {dy})};
      },
      .flops = ten_per_element,
      // A small eps, or rows of one or two elements, would make the numeric gradient meaningless.
      .samples = {{.shapes = {{2, 3}, {3}, {3}}, .attrs = {{"eps", 1e-2}}},
                  {.shapes = {{3, 5, 17}, {17}, {17}}},
                  {.shapes = {{1, 1}, {1}, {1}}, .attrs = {{"eps", 1.0}}},
                  {.shapes = {{7, 33}, {33}, {33}}, .attrs = {{"eps", 1e-5}}},
                  {.shapes = {{0, 3}, {3}, {3}}}},
  };
}

OpDef layer_norm_input_grad() {
  return {
      .name = "layer_norm_input_grad",
      .doc = "The gradient of layer_norm with respect to x, from the saved statistics.",
      .inputs = {"x", "gamma", "mean", "rstd", "dy"},
      .outputs = {"dx"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        check_shape(a, 1, {a.inputs[0].shape.back()}, to_fit(a, 0));
        check_statistics_and_dy(a, 2);
        return {a.inputs[0]};
      },
      .flops = ten_per_element,
      .samples = {{.shapes = {{2, 3}, {3}, {2}, {2}, {2, 3}}},
                  {.shapes = {{3, 5, 17}, {17}, {3, 5}, {3, 5}, {3, 5, 17}}},
                  {.shapes = {{1, 1}, {1}, {1}, {1}, {1, 1}}},
                  {.shapes = {{0, 3}, {3}, {0}, {0}, {0, 3}}}},
  };
}

OpDef layer_norm_gamma_grad() {
  return {
      .name = "layer_norm_gamma_grad",
      .doc = "The sum over rows, in ascending order, of dy * (x - mean) * rstd.",
      .inputs = {"x", "mean", "rstd", "dy"},
      .outputs = {"dgamma"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        check_statistics_and_dy(a, 1);
        return {float32({a.inputs[0].shape.back()})};
      },
      .flops = ten_per_element,
      .samples = {{.shapes = {{2, 3}, {2}, {2}, {2, 3}}},
                  {.shapes = {{3, 5, 17}, {3, 5}, {3, 5}, {3, 5, 17}}},
                  {.shapes = {{1, 1}, {1}, {1}, {1, 1}}},
                  {.shapes = {{0, 3}, {0}, {0}, {0, 3}}}},
  };
}

const AttrSpec kDropped = {"p", 0.1, true, "probability of a 0, in [0, 1)"};
const AttrSpec kDropoutKey = {"key", std::string(), true, "name of the dropout node"};

void check_rate(const InferArgs& a) {
  const double p = a.attrs.real("p");
  check_rank(a, 0, 2);
  check(p >= 0 && p < 1, a, "p must be in [0, 1), got {}", p);
}

Attrs dropped(double p) { return {{"p", p}, {"key", std::string("layer/dropout")}}; }

OpDef dropout_add_layer_norm() {
  OpDef def = layer_norm();
  def.name = "dropout_add_layer_norm";
  def.doc =
      "layer_norm of the sum of skip and dropout of x, in one kernel, with the mask of the dropout "
      "node named by key. Created by the fusion pass.";
  def.inputs = {"x", "skip", "gamma", "beta"};
  def.outputs.emplace_back("sum");
  def.attrs.insert(def.attrs.end(), {kDropped, kDropoutKey});
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    check_float(a);
    check_rate(a);
    check_shape(a, 1, a.inputs[0].shape, to_fit(a, 0));
    check_shape(a, 2, {a.inputs[0].shape.back()}, to_fit(a, 0));
    check_shape(a, 3, {a.inputs[0].shape.back()}, to_fit(a, 0));
    check(a.attrs.real("eps") >= 0, a, "eps must be >= 0, got {}", a.attrs.real("eps"));
    const TensorType statistics = float32(rows(a.inputs[0].shape));
    return {a.inputs[0], statistics, statistics, a.inputs[0]};
  };
  def.grad = nullptr;
  def.flops = [](const InferArgs& a) { return 21 * elements(a.inputs[0]); };
  def.samples = {};
  for (const auto& [shape, p] : std::vector<std::pair<Shape, double>>{
           {{kBatch, 3}, 0.5}, {{-5, 3, 17}, 0.1}, {{7, 33}, 0.0}, {{0, 3}, 0.5}}) {
    Sample s{.shapes = {shape, shape, {shape.back()}, {shape.back()}}, .attrs = dropped(p)};
    s.attrs.set("eps", 1e-2);
    def.samples.push_back(s);
  }
  return def;
}

OpDef dropout_add_layer_norm_grad() {
  OpDef def = layer_norm_input_grad();
  def.name = "dropout_add_layer_norm_grad";
  def.doc =
      "The gradients of dropout_add_layer_norm with respect to its sum, which is also the gradient "
      "of skip, and with respect to x, from the saved statistics.";
  def.inputs[0] = "sum";
  def.outputs = {"dsum", "dx"};
  def.attrs = {kDropped, kDropoutKey};
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    check_float(a);
    check_rate(a);
    check_shape(a, 1, {a.inputs[0].shape.back()}, to_fit(a, 0));
    check_statistics_and_dy(a, 2);
    return {a.inputs[0], a.inputs[0]};
  };
  def.flops = [](const InferArgs& a) { return 20 * elements(a.inputs[0]); };
  def.samples = {};
  for (const auto& [shape, p] : std::vector<std::pair<Shape, double>>{
           {{kBatch, 3}, 0.5}, {{-5, 3, 17}, 0.1}, {{7, 33}, 0.0}, {{0, 3}, 0.5}})
    def.samples.push_back(
        {.shapes = {shape, {shape.back()}, rows(shape), rows(shape), shape}, .attrs = dropped(p)});
  return def;
}

}  // namespace

std::vector<OpDef> norm() {
  OpDef forward = layer_norm(), of_x = layer_norm_input_grad(), of_gamma = layer_norm_gamma_grad();
  constexpr auto kFollows = NarrowArgs::Rule::Follows;
  forward.narrow = {kFollows, {1, 2}, {1, 2}};
  of_x.narrow = {kFollows, {1, 2, 3}, {}};
  of_gamma.narrow = {kFollows, {1, 2}, {0}};
  OpDef joined = dropout_add_layer_norm(), of_joined = dropout_add_layer_norm_grad();
  joined.narrow = {kFollows, {2, 3}, {1, 2}};
  of_joined.narrow = of_x.narrow;
  return {forward, of_x, of_gamma, joined, of_joined};
}

}  // namespace hetu::def
