// LSTM and GRU over a static number of steps along axis 1, each as a single operator. Two products
// are outside, so that they cover all steps at once: that of the input with its weights, before the
// operator, and those of the weight gradients, after it.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

// The sizes of y [batch, steps, width].
struct GateSizes {
  std::int64_t batch, places, width;
  Shape every(std::int64_t gates) const { return {batch, places, gates * width}; }
  Shape state() const { return {batch, width}; }
};

// Checks that input i is [batch, steps, gates * width], and returns its sizes.
GateSizes gate_sizes(const InferArgs& a, std::size_t i, std::int64_t gates) {
  check_float(a);
  const Shape& x = a.inputs[i].shape;
  check(x.size() == 3 && x[1] >= 0 && x[2] >= 0 && x[2] % gates == 0, a,
        "{} must be [batch, positions, {} * width], got {}", input_name(a, i), gates,
        to_string(a.inputs[i]));
  return {x[0], x[1], x[2] / gates};
}

// Returns the cost of the products with input w: 2 per weight, step and sample of input `every`.
std::int64_t product_flops(const InferArgs& a, std::size_t w, std::size_t every) {
  const Shape& x = a.inputs[every].shape;
  return 2 * elements(a.inputs[w]) * (x[0] < 0 ? -x[0] : x[0]) * x[1];
}

ValueId zeros(Builder& b, const Shape& shape) {
  const ValueId zero = b.apply("fill", {}, {{"shape", Shape{}}, {"value", 0.0}});
  return b.apply("broadcast_to", {zero}, {{"shape", shape}});
}

// Returns the gradient of an output, or zeros if the loss doesn't depend on the output.
ValueId slope_of(Builder& b, const GradArgs& g, std::size_t output) {
  return g.dy[output] != kNone ? g.dy[output] : zeros(b, b.type(g.outputs[output]).shape);
}

// Throws InvalidArgument with the node's name if the loss depends on the gates. They are a
// by-product without gradient.
void check_no_gate_slope(const GradArgs& g, std::size_t output) {
  require(g.dy[output] == kNone,
          "differentiate: output {} of {} '{}' has no gradient, but the loss depends on it", output,
          g.node.op, g.node.name);
}

// Returns the state before each step: h0, then all outputs but the last.
ValueId before(Builder& b, ValueId h0, ValueId y) {
  const Shape shape = b.type(y).shape;
  const ValueId first = b.apply("reshape", {h0}, {{"shape", Shape{shape[0], 1, shape[2]}}});
  if (shape[1] <= 1) return first;
  const ValueId others =
      b.apply("slice", {y},
              {{"axis", std::int64_t{1}}, {"first", std::int64_t{0}}, {"size", shape[1] - 1}});
  return b.apply("concat", {first, others}, {{"axis", std::int64_t{1}}});
}

OpDef lstm() {
  return {
      .name = "lstm",
      .doc =
          "The outputs y of an LSTM. At each position, x [batch, positions, 4 * width] plus the "
          "previous y times the transpose of w [4 * width, width] gives the input, forget, cell "
          "and output gates i, f, g and o, with c = sigmoid(f) c + sigmoid(i) tanh(g) and y = "
          "sigmoid(o) tanh(c). h0 and c0 are y and c before the first position.",
      .inputs = {"x", "w", "h0", "c0"},
      .outputs = {"y", "c", "gates"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const GateSizes s = gate_sizes(a, 0, 4);
        check_shape(a, 1, {4 * s.width, s.width}, to_fit(a, 0));
        check_shape(a, 2, s.state(), to_fit(a, 0));
        check_shape(a, 3, s.state(), to_fit(a, 0));
        return {float32(s.every(1)), float32(s.every(1)), float32(s.every(4))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        check_no_gate_slope(g, 2);
        const ValueId y = g.outputs[0];
        Values dx = b.apply_all("lstm_grad", {g.inputs[1], g.inputs[3], g.outputs[1], g.outputs[2],
                                              slope_of(b, g, 0), slope_of(b, g, 1)});
        const ValueId dw =
            g.wanted[1] ? b.apply("linear_weight_grad", {before(b, g.inputs[2], y), dx[0]}) : kNone;
        return {g.wanted[0] ? dx[0] : kNone, dw, g.wanted[2] ? dx[1] : kNone,
                g.wanted[3] ? dx[2] : kNone};
      },
      .flops = [](const InferArgs& a) { return product_flops(a, 1, 0); },
      .samples = {{.shapes = {{kBatch, 3, 8}, {8, 2}, {kBatch, 2}, {kBatch, 2}}},
                  {.shapes = {{kBatch, 1, 12}, {12, 3}, {kBatch, 3}, {kBatch, 3}}},
                  {.shapes = {{kBatch, 2, 4}, {4, 1}, {kBatch, 1}, {kBatch, 1}}}},
  };
}

OpDef lstm_grad() {
  return {
      .name = "lstm_grad",
      .doc =
          "The gradients of lstm with respect to x, h0 and c0, from the last position to the "
          "first.",
      .inputs = {"w", "c0", "c", "gates", "dy", "dc"},
      .outputs = {"dx", "dh0", "dc0"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const GateSizes s = gate_sizes(a, 4, 1);
        check_shape(a, 0, {4 * s.width, s.width}, to_fit(a, 4));
        check_shape(a, 1, s.state(), to_fit(a, 4));
        check_shape(a, 2, s.every(1), to_fit(a, 4));
        check_shape(a, 3, s.every(4), to_fit(a, 4));
        check_shape(a, 5, s.every(1), to_fit(a, 4));
        return {float32(s.every(4)), float32(s.state()), float32(s.state())};
      },
      .flops = [](const InferArgs& a) { return product_flops(a, 0, 4); },
      .samples = {{.shapes = {{8, 2},
                              {kBatch, 2},
                              {kBatch, 3, 2},
                              {kBatch, 3, 8},
                              {kBatch, 3, 2},
                              {kBatch, 3, 2}}}},
  };
}

OpDef gru() {
  return {
      .name = "gru",
      .doc =
          "The outputs y of a GRU. At each position, x [batch, positions, 3 * width] gives the "
          "parts xr, xz and xn. The previous y times the transpose of w [3 * width, width], plus "
          "b, gives the parts hr, hz and hn. Then r = sigmoid(xr + hr), z = sigmoid(xz + hz), n = "
          "tanh(xn + r hn) and y = (1 - z) n + z y. h0 is y before the first position.",
      .inputs = {"x", "w", "b", "h0"},
      .outputs = {"y", "gates"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const GateSizes s = gate_sizes(a, 0, 3);
        check_shape(a, 1, {3 * s.width, s.width}, to_fit(a, 0));
        check_shape(a, 2, {3 * s.width}, to_fit(a, 0));
        check_shape(a, 3, s.state(), to_fit(a, 0));
        return {float32(s.every(1)), float32(s.every(4))};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        check_no_gate_slope(g, 1);
        const ValueId y = g.outputs[0];
        const Values dx =
            b.apply_all("gru_grad", {g.inputs[1], g.inputs[3], y, g.outputs[1], slope_of(b, g, 0)});
        const ValueId dw =
            g.wanted[1] ? b.apply("linear_weight_grad", {before(b, g.inputs[3], y), dx[1]}) : kNone;
        return {g.wanted[0] ? dx[0] : kNone, dw, if_wanted(g.wanted[2], b, "sum_rows", {dx[1]}),
                g.wanted[3] ? dx[2] : kNone};
      },
      .flops = [](const InferArgs& a) { return product_flops(a, 1, 0); },
      .samples = {{.shapes = {{kBatch, 3, 6}, {6, 2}, {6}, {kBatch, 2}}},
                  {.shapes = {{kBatch, 1, 9}, {9, 3}, {9}, {kBatch, 3}}},
                  {.shapes = {{kBatch, 2, 3}, {3, 1}, {3}, {kBatch, 1}}}},
  };
}

OpDef gru_grad() {
  return {
      .name = "gru_grad",
      .doc =
          "The gradients of gru with respect to x, to the parts hr, hz and hn, and to h0, from the "
          "last position to the first.",
      .inputs = {"w", "h0", "y", "gates", "dy"},
      .outputs = {"dx", "dh", "dh0"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const GateSizes s = gate_sizes(a, 4, 1);
        check_shape(a, 0, {3 * s.width, s.width}, to_fit(a, 4));
        check_shape(a, 1, s.state(), to_fit(a, 4));
        check_shape(a, 2, s.every(1), to_fit(a, 4));
        check_shape(a, 3, s.every(4), to_fit(a, 4));
        return {float32(s.every(3)), float32(s.every(3)), float32(s.state())};
      },
      .flops = [](const InferArgs& a) { return product_flops(a, 0, 4); },
      .samples =
          {{.shapes = {{6, 2}, {kBatch, 2}, {kBatch, 3, 2}, {kBatch, 3, 8}, {kBatch, 3, 2}}}},
  };
}

}  // namespace

std::vector<OpDef> recurrent() { return {lstm(), lstm_grad(), gru(), gru_grad()}; }

}  // namespace hetu::def
