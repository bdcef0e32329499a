// Matrix products: linear layers, their gradients and K-FAC factors, and matmul.
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

Shape with_last(Shape shape, std::int64_t last) {
  shape.back() = last;
  return shape;
}

// linear costs 2 * rows * out * in, from x [rows, in] and w [out, in]. Its two gradients cost the
// same. linear_grad_flops computes it from (dy, w) or from (x, dy).
std::int64_t linear_flops(const InferArgs& a) {
  return 2 * elements(a.inputs[0]) * a.inputs[1].shape[0];
}

std::int64_t linear_grad_flops(const InferArgs& a) {
  return 2 * elements(a.inputs[0]) * a.inputs[1].shape.back();
}

std::vector<TensorType> infer_linear(const InferArgs& a) {
  check_float(a);
  check_rank(a, 0, 1);
  const std::int64_t in = a.inputs[0].shape.back();
  const Shape& w = a.inputs[1].shape;
  check(w.size() == 2 && w[1] == in, a, "w must be [out, {}] {}, got {}", in, to_fit(a, 0),
        to_string(a.inputs[1]));
  if (a.inputs.size() == 3) check_shape(a, 2, {w[0]}, to_fit(a, 1));
  return {float32(with_last(a.inputs[0].shape, w[0]))};
}

OpDef linear_op() {
  return {
      .name = "linear",
      .doc = "x w^T + b over the last axis; the weight is [out, in], as in PyTorch.",
      .inputs = {"x", "w"},
      .optional_inputs = {"b"},
      .infer = infer_linear,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Values dx = {if_wanted(g.wanted[0], b, "linear_input_grad", {g.dy[0], g.inputs[1]}),
                     if_wanted(g.wanted[1], b, "linear_weight_grad", {g.inputs[0], g.dy[0]})};
        if (g.inputs.size() == 3) {
          dx.push_back(if_wanted(g.wanted[2], b, "sum_rows", {g.dy[0]}));
        }
        return dx;
      },
      .flops = linear_flops,
      .samples = {{.shapes = {{2, 3}, {4, 3}, {4}}},
                  {.shapes = {{2, 3}, {4, 3}}},
                  {.shapes = {{3, 5, 7}, {2, 7}, {2}}},
                  {.shapes = {{1, 1}, {1, 1}, {1}}},
                  {.shapes = {{17, 33}, {19, 33}, {19}}},
                  {.shapes = {{0, 3}, {4, 3}, {4}}}},
  };
}

// Returns the number of outputs of linear for one sample. The dtype doesn't matter.
std::int64_t made_elements(const InferArgs& a) {
  return elements(float32(with_last(a.inputs[0].shape, a.inputs[1].shape[0])));
}

OpDef linear_relu() {
  OpDef def = linear_op();
  def.name = "linear_relu";
  def.doc = "relu of linear in one kernel. Created by the fusion pass.";
  def.grad = nullptr;
  def.flops = [](const InferArgs& a) { return linear_flops(a) + made_elements(a); };
  return def;
}

// Returns the record of linear with an activation whose gradient reads the output of linear.
OpDef linear_then(const std::string& activation) {
  OpDef def = linear_relu();
  def.name = "linear_" + activation;
  def.doc =
      activation +
      " of linear in one kernel, and the result of linear itself. Created by the fusion pass.";
  def.outputs = {"y", "before"};
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    const TensorType made = infer_linear(a)[0];
    return {made, made};
  };
  def.flops = [](const InferArgs& a) { return linear_flops(a) + 10 * made_elements(a); };
  return def;
}

std::vector<TensorType> infer_linear_input_grad(const InferArgs& a) {
  check_float(a);
  check_rank(a, 0, 1);
  const Shape& w = a.inputs[1].shape;
  check(w.size() == 2 && w[0] == a.inputs[0].shape.back(), a, "w must be [{}, in] {}, got {}",
        a.inputs[0].shape.back(), to_fit(a, 0), to_string(a.inputs[1]));
  const Shape made = with_last(a.inputs[0].shape, w[1]);
  if (a.inputs.size() == 3) check_shape(a, 2, made, to_fit(a, 0));
  return {float32(made)};
}

OpDef linear_input_grad() {
  return {
      .name = "linear_input_grad",
      .doc = "The gradient of linear with respect to x: dy w.",
      .inputs = {"dy", "w"},
      .outputs = {"dx"},
      .infer = infer_linear_input_grad,
      .flops = linear_grad_flops,
      .samples = {{.shapes = {{2, 4}, {4, 3}}},
                  {.shapes = {{3, 5, 2}, {2, 7}}},
                  {.shapes = {{1, 1}, {1, 1}}},
                  {.shapes = {{17, 19}, {19, 33}}},
                  {.shapes = {{0, 4}, {4, 3}}}},
  };
}

OpDef linear_input_grad_add() {
  OpDef def = linear_input_grad();
  def.name = "linear_input_grad_add";
  def.doc =
      "dy w + g: the gradient of linear plus another gradient g of the same x, in one kernel. "
      "Created by the fusion pass.";
  def.inputs.push_back("g");
  def.flops = [](const InferArgs& a) { return linear_grad_flops(a) + elements(a.inputs[2]); };
  for (Sample& s : def.samples) s.shapes.push_back(with_last(s.shapes[0], s.shapes[1][1]));
  return def;
}

std::vector<TensorType> infer_linear_weight_grad(const InferArgs& a) {
  check_float(a);
  check_rank(a, 0, 1);
  check_rank(a, 1, 1);
  check(rows(a.inputs[0].shape) == rows(a.inputs[1].shape), a,
        "dy must have the rows of x {}, got {}", to_string(a.inputs[0]), to_string(a.inputs[1]));
  return {float32({a.inputs[1].shape.back(), a.inputs[0].shape.back()})};
}

OpDef linear_weight_grad() {
  return {
      .name = "linear_weight_grad",
      .doc = "The gradient of linear with respect to w: dy^T x over all rows.",
      .inputs = {"x", "dy"},
      .outputs = {"dw"},
      .infer = infer_linear_weight_grad,
      .flops = linear_grad_flops,
      .samples = {{.shapes = {{2, 3}, {2, 4}}},
                  {.shapes = {{3, 5, 7}, {3, 5, 2}}},
                  {.shapes = {{1, 1}, {1, 1}}},
                  {.shapes = {{17, 33}, {17, 19}}},
                  {.shapes = {{0, 3}, {0, 4}}}},
  };
}

OpDef linear_weight_bias_grad() {
  OpDef def = linear_weight_grad();
  def.name = "linear_weight_bias_grad";
  def.doc =
      "The gradients of linear with respect to w and b in one kernel: dy^T x, and the sum of dy, "
      "over all rows. Created by the fusion pass.";
  def.outputs.emplace_back("db");
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    return {infer_linear_weight_grad(a)[0], float32({a.inputs[1].shape.back()})};
  };
  def.flops = [](const InferArgs& a) { return linear_grad_flops(a) + elements(a.inputs[1]); };
  return def;
}

// `inverse` is a parameter, and the factor is its gradient. Stages and optimizers find the factor
// through it.
OpDef kronecker_factor() {
  return {
      .name = "kronecker_factor",
      .doc =
          "A factor of K-FAC (Martens, Grosse 2015): the sum of x x^T over all rows. It is the "
          "gradient of the parameter `inverse`, whose values are not read.",
      .inputs = {"x", "inverse"},
      .outputs = {"y"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_rank(a, 0, 1);
        const std::int64_t side = a.inputs[0].shape.back();
        check(a.inputs[1].shape == Shape{side, side}, a, "inverse must be [{}, {}], got {}", side,
              side, to_string(a.inputs[1]));
        return {float32({side, side})};
      },
      .flops =
          [](const InferArgs& a) {  // of one triangle, because the factor is symmetric
            return elements(a.inputs[0]) * (a.inputs[0].shape.back() + 1);
          },
      .samples = {{.shapes = {{5, 3}, {3, 3}}},
                  {.shapes = {{2, 3, 7}, {7, 7}}},
                  {.shapes = {{33, 17}, {17, 17}}},
                  {.shapes = {{0, 3}, {3, 3}}}},
  };
}

struct MatmulSizes {
  std::int64_t m, k, k_of_b, n;
};

MatmulSizes matmul_sizes(const InferArgs& a) {
  const Shape& x = a.inputs[0].shape;
  const Shape& y = a.inputs[1].shape;
  const bool ta = a.attrs.integer("transpose_a") != 0;
  const bool tb = a.attrs.integer("transpose_b") != 0;
  const std::size_t i = x.size() - 2;
  const std::size_t j = y.size() - 2;
  return {x[i + (ta ? 1 : 0)], x[i + (ta ? 0 : 1)], y[j + (tb ? 1 : 0)], y[j + (tb ? 0 : 1)]};
}

std::vector<TensorType> infer_matmul(const InferArgs& a) {
  check_float(a);
  check_rank(a, 0, 2);
  check_rank(a, 1, 2);
  for (const char* flag : {"transpose_a", "transpose_b"}) {
    const std::int64_t value = a.attrs.integer(flag);
    check(value == 0 || value == 1, a, "{} must be 0 or 1, got {}", flag, value);
  }
  check(rows(rows(a.inputs[0].shape)) == rows(rows(a.inputs[1].shape)), a,
        "a and b must have equal leading dimensions, got {} and {}", to_string(a.inputs[0]),
        to_string(a.inputs[1]));
  const MatmulSizes s = matmul_sizes(a);
  check(
      s.k == s.k_of_b, a,
      "columns of a must equal rows of b (after transposition), got {} and {} with transpose_a={}, "
      "transpose_b={}",
      to_string(a.inputs[0]), to_string(a.inputs[1]), a.attrs.integer("transpose_a"),
      a.attrs.integer("transpose_b"));
  Shape shape = rows(rows(a.inputs[0].shape));
  shape.push_back(s.m);
  shape.push_back(s.n);
  return {float32(shape)};
}

Attrs transposes(bool a, bool b) {
  return {{"transpose_a", std::int64_t{a}}, {"transpose_b", std::int64_t{b}}};
}

// With A = op(a) and B = op(b): dA = dy B^T and dB = A^T dy, transposed if a or b is transposed.
Values matmul_grad(Builder& b, const GradArgs& g) {
  const bool ta = g.node.attrs.integer("transpose_a") != 0;
  const bool tb = g.node.attrs.integer("transpose_b") != 0;
  const ValueId x = g.inputs[0];
  const ValueId y = g.inputs[1];
  const ValueId dy = g.dy[0];
  return {ta ? if_wanted(g.wanted[0], b, "matmul", {y, dy}, transposes(tb, true))
             : if_wanted(g.wanted[0], b, "matmul", {dy, y}, transposes(false, !tb)),
          tb ? if_wanted(g.wanted[1], b, "matmul", {dy, x}, transposes(true, ta))
             : if_wanted(g.wanted[1], b, "matmul", {x, dy}, transposes(!ta, false))};
}

OpDef matmul() {
  return {
      .name = "matmul",
      .doc = "The product of [..., m, k] and [..., k, n] with equal leading dimensions.",
      .inputs = {"a", "b"},
      .attrs = {{"transpose_a", std::int64_t{0}, false, "1: a is [..., k, m]"},
                {"transpose_b", std::int64_t{0}, false, "1: b is [..., n, k]"}},
      .infer = infer_matmul,
      .grad = matmul_grad,
      .flops = [](const InferArgs& a) { return 2 * elements(a.inputs[0]) * matmul_sizes(a).n; },
      .samples = {{.shapes = {{2, 3}, {3, 4}}},
                  {.shapes = {{2, 3}, {4, 3}}, .attrs = transposes(false, true)},
                  {.shapes = {{3, 2}, {3, 4}}, .attrs = transposes(true, false)},
                  {.shapes = {{3, 2}, {4, 3}}, .attrs = transposes(true, true)},
                  {.shapes = {{2, 3, 5, 7}, {2, 3, 7, 3}}},
                  {.shapes = {{2, 3, 5, 7}, {2, 3, 9, 7}}, .attrs = transposes(false, true)},
                  {.shapes = {{1, 1}, {1, 1}}},
                  {.shapes = {{0, 3}, {3, 4}}}},
  };
}

}  // namespace

std::vector<OpDef> linear() {
  return {product_of(linear_op(), {2}),
          product_of(linear_relu(), {2}),
          product_of(linear_then("gelu"), {2}),
          product_of(linear_then("gelu_tanh"), {2}),
          product_of(linear_input_grad()),
          product_of(linear_input_grad_add()),
          product_of(linear_weight_grad(), {}, {0}),
          product_of(linear_weight_bias_grad(), {}, {0, 1}),
          kronecker_factor(),
          product_of(matmul())};
}

}  // namespace hetu::def
