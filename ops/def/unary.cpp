// Elementwise functions of one tensor, except activations.
#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

std::vector<Sample> samples(bool positive = false, const Attrs& attrs = {}) {
  std::vector<Sample> all = {{.shapes = {{2, 3}}}, {.shapes = {{1}}},
                             {.shapes = {{}}},     {.shapes = {{3, 5, 17}}},
                             {.shapes = {{0}}},    {.shapes = {{2, 3, 2, 5}}}};
  for (Sample& s : all) {
    s.positive = positive;
    s.attrs = attrs;
  }
  return all;
}

OpDef function(const std::string& name, const std::string& doc,
               Values (*grad)(Builder&, const GradArgs&), bool positive = false) {
  return {.name = name,
          .doc = doc,
          .inputs = {"x"},
          .infer = same_as_input,
          .grad = grad,
          .flops = ten_per_element,
          .samples = samples(positive),
          .images = {{0}, {0}}};
}

// Returns the gradient dy * slope.
Values times(Builder& b, const GradArgs& g, ValueId slope) {
  return {b.apply("mul", {g.dy[0], slope})};
}

OpDef exp() {
  return function("exp", "e to the power x, elementwise.",
                  [](Builder& b, const GradArgs& g) { return times(b, g, g.outputs[0]); });
}

OpDef log() {
  return function(
      "log", "The natural logarithm, elementwise: -infinity at 0, NaN below.",
      [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("div", {g.dy[0], g.inputs[0]})};
      },
      true);
}

OpDef sqrt() {
  return function(
      "sqrt", "The square root, elementwise: NaN below 0; the gradient at 0 is infinite.",
      [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("div", {b.apply("scale", {g.dy[0]}, {{"factor", 0.5}}), g.outputs[0]})};
      },
      true);
}

OpDef rsqrt() {
  return function(
      "rsqrt", "1 / sqrt(x), elementwise: infinite at 0, NaN below.",
      [](Builder& b, const GradArgs& g) {
        const ValueId y = g.outputs[0], cube = b.apply("mul", {b.apply("mul", {y, y}), y});
        return times(b, g, b.apply("scale", {cube}, {{"factor", -0.5}}));
      },
      true);
}

OpDef abs() {
  return function(
      "abs", "|x|, elementwise; the gradient at 0 is 0.",
      [](Builder& b, const GradArgs& g) { return times(b, g, b.apply("sign", {g.inputs[0]})); });
}

OpDef sign() {
  return function("sign", "1 above 0, -1 below, else 0, elementwise; no gradient.", nullptr);
}

OpDef sin() {
  return function(
      "sin", "The sine of x in radians, elementwise.",
      [](Builder& b, const GradArgs& g) { return times(b, g, b.apply("cos", {g.inputs[0]})); });
}

OpDef cos() {
  return function("cos", "The cosine of x in radians, elementwise.",
                  [](Builder& b, const GradArgs& g) {
                    const ValueId sine = b.apply("sin", {g.inputs[0]});
                    return times(b, g, b.apply("scale", {sine}, {{"factor", -1.0}}));
                  });
}

OpDef power() {
  OpDef def =
      function("power",
               "x to the power of a number, elementwise as in C's pow, except that 1/2 is the "
               "square root: NaN below 0.",
               [](Builder& b, const GradArgs& g) -> Values {
                 const double exponent = g.node.attrs.real("exponent");
                 if (exponent == 0)  // also where x^-1 would be infinite
                   return {b.apply("expand", {number(b, 0), g.inputs[0]})};
                 const ValueId less = b.apply("power", {g.inputs[0]}, {{"exponent", exponent - 1}});
                 return times(b, g, b.apply("scale", {less}, {{"factor", exponent}}));
               });
  def.attrs = {{"exponent", 2.0, true, "exponent"}};
  def.samples = samples(false, {{"exponent", 2.0}});
  for (const double exponent : {0.0, 1.0, 3.0})
    def.samples.push_back({.shapes = {{2, 9}}, .attrs = {{"exponent", exponent}}});
  for (const double exponent : {0.5, -0.5, -1.0, -2.0, 2.5})
    def.samples.push_back(
        {.shapes = {{2, 9}}, .attrs = {{"exponent", exponent}}, .positive = true});
  return def;
}

OpDef clip() {
  OpDef def = function("clip",
                       "min(max(x, low), high), elementwise; NaN where x is NaN. The gradient "
                       "passes between the bounds, not on them.",
                       [](Builder& b, const GradArgs& g) -> Values {
                         const Attrs& n = g.node.attrs;
                         const ValueId x = g.inputs[0];
                         const ValueId within = b.apply(
                             "logical_and", {b.apply("greater", {x, number(b, n.real("low"))}),
                                             b.apply("less", {x, number(b, n.real("high"))})});
                         return {b.apply("where", {within, g.dy[0], number(b, 0)})};
                       });
  def.attrs = {{"low", 0.0, true, "lower bound"}, {"high", 1.0, true, "upper bound"}};
  def.infer = [](const InferArgs& a) -> std::vector<TensorType> {
    check(a.attrs.real("low") <= a.attrs.real("high"), a, "low {} is above high {}",
          a.attrs.real("low"), a.attrs.real("high"));
    return same_as_input(a);
  };
  def.samples = samples(false, {{"low", -0.5}, {"high", 1.0}});
  return def;
}

}  // namespace

std::vector<OpDef> unary() {
  std::vector<OpDef> all = following({abs(), sign(), clip()});
  for (OpDef& def :
       std::vector<OpDef>{exp(), log(), sqrt(), rsqrt(), sin(), cos(), power()})  // float32 only
    all.push_back(std::move(def));
  return all;
}

}  // namespace hetu::def
