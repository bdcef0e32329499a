// Batch normalization of images, and its running statistics.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const AttrSpec kEpsilon = {"epsilon", 1e-5, false, "added to the variance"};

// Checks that `count` inputs from `first` on have one element per channel of input 0.
void check_per_channel(const InferArgs& a, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < first + count; ++i) {
    check_shape(a, i, {a.inputs[0].shape[1]}, to_fit(a, 0));
  }
}

void check_epsilon(const InferArgs& a) {
  check(a.attrs.real("epsilon") >= 0, a, "epsilon must be >= 0, got {}", a.attrs.real("epsilon"));
}

const std::vector<std::string> kForward = {"x", "gamma", "beta", "running_mean", "running_var"};
const std::vector<std::string> kResults = {"y", "mean", "variance", "next_mean", "next_var"};

std::vector<TensorType> infer_batch_norm(const InferArgs& a) {
  check_float(a);
  check_images(a, 0);
  check_per_channel(a, 1, 4);
  if (a.inputs.size() > 5) check_shape(a, 5, a.inputs[0].shape, to_fit(a, 0));
  check_epsilon(a);
  const double momentum = a.attrs.real("momentum");
  check(momentum >= 0 && momentum <= 1, a, "momentum must be in [0, 1], got {}", momentum);
  const TensorType channels = float32({a.inputs[0].shape[1]});
  return {a.inputs[0], channels, channels, channels, channels};
}

// Returns the record of batch_norm, or of a fused operator that includes it.
OpDef forward(const std::string& name, const std::string& doc) {
  return {
      .name = name,
      .doc = doc,
      .inputs = kForward,
      .outputs = kResults,
      .attrs = {{"momentum", 0.1, false, "weight of this micro-batch in the buffers"}, kEpsilon},
      .infer = infer_batch_norm,
      .flops = ten_per_element,
      .samples = {{.shapes = {{3, 2, 2, 3}, {2}, {2}, {2}, {2}}, .attrs = {{"epsilon", 1e-2}}},
                  {.shapes = {{kBatch, 3, 4, 5}, {3}, {3}, {3}, {3}}, .attrs = {{"momentum", 0.3}}},
                  {.shapes = {{7, 17, 1, 1}, {17}, {17}, {17}, {17}},
                   .attrs = {{"epsilon", 1e-1}}}},
      .replaces = {{3, 3}, {4, 4}},
      .images = {{0}, {0}},
      .narrow = {NarrowArgs::Rule::Follows, {1, 2, 3, 4}, {1, 2, 3, 4}},
  };
}

OpDef batch_norm() {
  OpDef def = forward("batch_norm",
                      "gamma * (x - mean) / sqrt(variance + epsilon) + beta per channel of x [N, "
                      "C, H, W]. Training uses the mean and the biased variance of this "
                      "micro-batch, and moves the buffers towards the mean and the unbiased "
                      "variance, n / (n - 1), by momentum. Validation uses the buffers.");
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const Values all = b.apply_all(
        "batch_norm_grad", {g.inputs[0], g.inputs[1], g.outputs[1], g.outputs[2], only_dy(g)},
        {{"epsilon", g.node.attrs.real("epsilon")}});
    Values dx = all;
    for (std::size_t i = 0; i < dx.size(); ++i) {
      if (!g.wanted[i]) dx[i] = kNone;
    }
    dx.resize(5, kNone);
    return dx;
  };
  return def;
}

OpDef batch_norm_relu() {
  return forward("batch_norm_relu",
                 "relu of batch_norm in one kernel. Created by the fusion pass.");
}

OpDef batch_norm_add_relu() {
  OpDef def = forward("batch_norm_add_relu",
                      "relu of batch_norm plus skip in one kernel. Created by the fusion pass.");
  def.inputs.push_back("skip");
  for (Sample& sample : def.samples) sample.shapes.push_back(sample.shapes[0]);
  def.images = {{0, 5}, {0}};
  return def;
}

// Returns the record of the gradient of batch_norm, or of batch_norm_relu, which also reads beta.
OpDef backward(const std::string& name, const std::string& doc, bool relu) {
  OpDef def = {
      .name = name,
      .doc = doc,
      .inputs = {"x", "gamma", "mean", "variance", "dy"},
      .outputs = {"dx", "dgamma", "dbeta"},
      .attrs = {kEpsilon},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const std::size_t dy = a.inputs.size() - 1;
        check_float(a);
        check_images(a, 0);
        check_per_channel(a, 1, dy - 1);
        check_shape(a, dy, a.inputs[0].shape, to_fit(a, 0));
        check_epsilon(a);
        const TensorType channels = float32({a.inputs[0].shape[1]});
        return {a.inputs[0], channels, channels};
      },
      .flops = ten_per_element,
      // The test grid draws variances like any other input, so some are negative. epsilon makes the
      // sums positive.
      .samples = {{.shapes = {{3, 2, 2, 3}, {2}, {2}, {2}, {3, 2, 2, 3}},
                   .attrs = {{"epsilon", 5.0}}},
                  {.shapes = {{kBatch, 3, 4, 5}, {3}, {3}, {3}, {kBatch, 3, 4, 5}},
                   .attrs = {{"epsilon", 5.0}}},
                  {.shapes = {{7, 17, 1, 1}, {17}, {17}, {17}, {7, 17, 1, 1}},
                   .attrs = {{"epsilon", 5.0}}}},
      .images = {{0, 4}, {0}},
      .narrow = {NarrowArgs::Rule::Follows, {1, 2, 3}, {1, 2}},
  };
  if (!relu) return def;
  def.inputs = {"x", "gamma", "mean", "variance", "beta", "dy"};
  def.images = {{0, 5}, {0}};
  def.narrow.wide_inputs.push_back(4);
  for (Sample& sample : def.samples) {
    sample.shapes.insert(sample.shapes.begin() + 4, sample.shapes[1]);
  }
  return def;
}

OpDef batch_norm_grad() {
  return backward("batch_norm_grad",
                  "The gradients of batch_norm in training with respect to x, gamma and beta, from "
                  "the saved statistics.",
                  false);
}

OpDef batch_norm_relu_grad() {
  return backward("batch_norm_relu_grad",
                  "batch_norm_grad of dy where gamma * (x - mean) / sqrt(variance + epsilon) + "
                  "beta > 0, and of 0 elsewhere. Created by the fusion pass.",
                  true);
}

OpDef batch_norm_add_relu_grad() {
  OpDef def = backward(
      "batch_norm_add_relu_grad",
      "batch_norm_grad of dy + more where y, the result of batch_norm_add_relu, is above 0, and of "
      "0 elsewhere. That input is dskip, the gradient of skip. Created by the fusion pass.",
      false);
  def.inputs = {"x", "gamma", "mean", "variance", "y", "dy", "more"};
  def.outputs.push_back("dskip");
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    check_float(a);
    check_images(a, 0);
    check_per_channel(a, 1, 3);
    for (const std::size_t i : {4, 5, 6}) check_shape(a, i, a.inputs[0].shape, to_fit(a, 0));
    check_epsilon(a);
    const TensorType channels = float32({a.inputs[0].shape[1]});
    return {a.inputs[0], channels, channels, a.inputs[5]};
  };
  for (Sample& sample : def.samples) sample.shapes.insert(sample.shapes.end(), 2, sample.shapes[0]);
  def.images = {{0, 4, 5, 6}, {0, 3}};
  return def;
}

OpDef count_up() {
  return {
      .name = "count_up",
      .doc =
          "x + 1 for a scalar buffer that counts the forwards of micro-batches in training (exact "
          "up to 2^24).",
      .inputs = {"x"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_shape(a, 0, {}, "(a scalar)");
        return {a.inputs[0]};
      },
      .samples = {{.shapes = {{}}}},
      .replaces = {{0, 0}},
  };
}

}  // namespace

std::vector<OpDef> batch_norm_family() {
  return {batch_norm(),      batch_norm_relu(),      batch_norm_add_relu(),
          batch_norm_grad(), batch_norm_relu_grad(), batch_norm_add_relu_grad(),
          count_up()};
}

}  // namespace hetu::def
