// Elementwise activations and softmax.
#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const std::vector<Sample> kOne = {{.shapes = {{2, 3}}},
                                  {.shapes = {{1}}},
                                  {.shapes = {{3, 5, 17}}},
                                  {.shapes = {{0}}},
                                  {.shapes = {{2, 3, 2, 5}}}};
const std::vector<Sample> kTwo = {{.shapes = {{2, 3}, {2, 3}}},
                                  {.shapes = {{1}, {1}}},
                                  {.shapes = {{3, 5, 17}, {3, 5, 17}}},
                                  {.shapes = {{0}, {0}}},
                                  {.shapes = {{2, 3, 2, 5}, {2, 3, 2, 5}}}};

// Returns the record of a gradient such as relu_grad: an elementwise function of dy and a saved
// tensor.
OpDef gradient_of(const std::string& name, const std::string& doc, const std::string& saved) {
  return {.name = name,
          .doc = doc,
          .inputs = {saved, "dy"},
          .outputs = {"dx"},
          .infer = same_as_input,
          .samples = kTwo,
          .images = {{0, 1}, {0}}};
}

OpDef relu() {
  return {
      .name = "relu",
      .doc = "max(x, 0), elementwise; the gradient at 0 is 0.",
      .inputs = {"x"},
      .infer = same_as_input,
      // Computed from y, which is positive exactly where x is. The next operator keeps y anyway.
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("relu_grad", {g.outputs[0], g.dy[0]})};
      },
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef gelu() {
  return {
      .name = "gelu",
      .doc =
          "x/2 * (1 + erf(x / sqrt(2))), elementwise; the exact form, not the tanh approximation.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("gelu_grad", {g.inputs[0], g.dy[0]})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef tanh() {
  return {
      .name = "tanh",
      .doc = "The hyperbolic tangent, elementwise; its gradient is computed from y.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("tanh_grad", {g.outputs[0], g.dy[0]})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef gelu_tanh() {
  return {
      .name = "gelu_tanh",
      .doc = "x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), elementwise: the gelu of GPT-2.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("gelu_tanh_grad", {g.inputs[0], g.dy[0]})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef sigmoid() {
  return {
      .name = "sigmoid",
      .doc = "1 / (1 + exp(-x)), elementwise.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const ValueId other = b.apply("sub", {number(b, 1), g.outputs[0]});
        return {b.apply("mul", {g.dy[0], b.apply("mul", {other, g.outputs[0]})})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef silu() {
  return {
      .name = "silu",
      .doc = "x / (1 + exp(-x)), elementwise; also called swish.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("silu_grad", {g.inputs[0], g.dy[0]})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef softplus() {
  return {
      .name = "softplus",
      .doc = "log(1 + exp(x)), elementwise, without overflow.",
      .inputs = {"x"},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("mul", {g.dy[0], b.apply("sigmoid", {g.inputs[0]})})};
      },
      .flops = ten_per_element,
      .samples = kOne,
      .images = {{0}, {0}},
  };
}

OpDef leaky_relu() {
  std::vector<Sample> samples = kOne;
  for (Sample& s : samples) s.attrs = {{"slope", 0.1}};
  return {
      .name = "leaky_relu",
      .doc = "x where x > 0, else x * slope, elementwise; the gradient at 0 is slope times dy.",
      .inputs = {"x"},
      .attrs = {{"slope", 0.01, false, "slope where x is below 0"}},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const ValueId above = b.apply("greater", {g.inputs[0], number(b, 0)});
        const ValueId less = b.apply("scale", {g.dy[0]}, {{"factor", g.node.attrs.real("slope")}});
        return {b.apply("where", {above, g.dy[0], less})};
      },
      .samples = samples,
      .images = {{0}, {0}},
  };
}

std::vector<TensorType> infer_softmax(const InferArgs& a) {
  check_rank(a, 0, 1);
  return same_as_input(a);
}

OpDef softmax() {
  return {
      .name = "softmax",
      .doc = "exp(x - max) / sum(exp(x - max)) along the last axis.",
      .inputs = {"x"},
      .infer = infer_softmax,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("softmax_grad", {g.outputs[0], g.dy[0]})};
      },
      .flops = ten_per_element,
      .samples = kOne,
  };
}

OpDef softmax_grad() {
  OpDef def = gradient_of("softmax_grad", "y * (dy - sum(y * dy)) along the last axis.", "y");
  def.infer = infer_softmax;
  def.images = {};
  return def;
}

}  // namespace

std::vector<OpDef> activation() {
  std::vector<OpDef> all = following(
      {relu(), gradient_of("relu_grad", "dy where x > 0, else 0.", "x"), gelu(),
       gradient_of("gelu_grad", "dy times the derivative of gelu at x.", "x"), tanh(),
       gradient_of("tanh_grad", "dy * (1 - y*y), from the output y of tanh.", "y"), gelu_tanh(),
       gradient_of("gelu_tanh_grad", "dy times the derivative of gelu_tanh at x.", "x"), sigmoid(),
       silu(), gradient_of("silu_grad", "dy times the derivative of silu at x.", "x"), softplus(),
       leaky_relu()});
  all.push_back(softmax());
  all.push_back(softmax_grad());
  return all;
}

}  // namespace hetu::def
