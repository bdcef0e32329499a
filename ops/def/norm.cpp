// Normalisation.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

// The statistics of the rows of input 0 at inputs mean and mean + 1, and dy like input 0.
void want_statistics_and_dy(const InferArgs& a, std::size_t mean) {
  want_shape(a, mean, rows(a.inputs[0].shape), to_fit(a, 0));
  want_shape(a, mean + 1, rows(a.inputs[0].shape), to_fit(a, 0));
  want_shape(a, mean + 2, a.inputs[0].shape, to_fit(a, 0));
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
        want_float(a);
        want_rank(a, 0, 1);
        want_shape(a, 1, {a.inputs[0].shape.back()}, to_fit(a, 0));
        want_shape(a, 2, {a.inputs[0].shape.back()}, to_fit(a, 0));
        want(a.attrs.real("eps") >= 0, a, "eps must be >= 0, got {}", a.attrs.real("eps"));
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
      // A small eps and rows of one or two elements would make the numeric gradient meaningless.
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
        want_float(a);
        want_rank(a, 0, 1);
        want_shape(a, 1, {a.inputs[0].shape.back()}, to_fit(a, 0));
        want_statistics_and_dy(a, 2);
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
        want_float(a);
        want_rank(a, 0, 1);
        want_statistics_and_dy(a, 1);
        return {float32({a.inputs[0].shape.back()})};
      },
      .flops = ten_per_element,
      .samples = {{.shapes = {{2, 3}, {2}, {2}, {2, 3}}},
                  {.shapes = {{3, 5, 17}, {3, 5}, {3, 5}, {3, 5, 17}}},
                  {.shapes = {{1, 1}, {1}, {1}, {1, 1}}},
                  {.shapes = {{0, 3}, {0}, {0}, {0, 3}}}},
  };
}

}  // namespace

std::vector<OpDef> norm() {
  OpDef forward = layer_norm(), of_x = layer_norm_input_grad(), of_gamma = layer_norm_gamma_grad();
  constexpr auto kFollows = NarrowArgs::Rule::Follows;
  forward.narrow = {kFollows, {1, 2}, {1, 2}};
  of_x.narrow = {kFollows, {1, 2, 3}, {}};
  of_gamma.narrow = {kFollows, {1, 2}, {0}};
  return {forward, of_x, of_gamma};
}

}  // namespace hetu::def
