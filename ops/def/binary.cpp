// Operators with two operands that broadcast as in NumPy: arithmetic, comparisons, selection.
#include "ops/def/broadcast.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

const std::vector<Sample> kPairs = {
    {.shapes = {{2, 3}, {2, 3}}}, {.shapes = {{1}, {1}}}, {.shapes = {{5, 1, 7}, {5, 1, 7}}},
    {.shapes = {{0, 4}, {0, 4}}}, {.shapes = {{}, {}}},   {.shapes = {{2, 3, 2, 5}, {2, 3, 2, 5}}}};

// Each side broadcast: over the batch, at the end, in the middle, both sides at once, as images.
const std::vector<std::vector<Shape>> kBroadcasts = {{{kBatch, 3}, {3}},
                                                     {{3}, {kBatch, 3}},
                                                     {{kBatch, 3}, {}},
                                                     {{}, {kBatch, 2, 3}},
                                                     {{kBatch, 1}, {3}},
                                                     {{kBatch, 3, 1}, {4}},
                                                     {{kBatch, 2, 1}, {1, 1, 5}},
                                                     {{kBatch, 2, 3}, {1, 2, 1}},
                                                     {{1, 3}, {kBatch, 3}},
                                                     {{kBatch, 0}, {1}},
                                                     {{kBatch, 3, 2, 5}, {1, 3, 1, 1}}};

// Returns samples of equal shapes and of all kinds of broadcasting, with this dtype.
std::vector<Sample> pairs(DType dtype = DType::Float32, bool positive = false) {
  std::vector<Sample> all = kPairs;
  for (const std::vector<Shape>& shapes : kBroadcasts) all.push_back({.shapes = shapes});
  for (Sample& s : all) {
    s.positive = positive;
    if (dtype != DType::Float32) s.dtypes = {dtype, dtype};
  }
  return all;
}

void want_float32_or_int32(const InferArgs& a) {
  const DType dtype = a.inputs[0].dtype;
  check((dtype == DType::Float32 || dtype == DType::Int32) && a.inputs[1].dtype == dtype, a,
        "a and b must have one dtype, float32 or int32, got {} and {}; use cast",
        to_string(a.inputs[0]), to_string(a.inputs[1]));
}

Shape shape_of(const Builder& b, const GradArgs& g, std::size_t i) {
  return b.type(g.inputs[i]).shape;
}

// Returns the gradient of input i, if wanted: op(inputs), summed over the axes along which input i
// was broadcast.
ValueId summed(const GradArgs& g, std::size_t i, Builder& b, const std::string& op,
               const Values& inputs, const Attrs& attrs = {}) {
  return g.wanted[i] ? sum_to(b, b.apply(op, inputs, attrs), shape_of(b, g, i)) : kNone;
}

ValueId passed_on(Builder& b, const GradArgs& g, std::size_t i) {
  return g.wanted[i] ? sum_to(b, g.dy[0], shape_of(b, g, i)) : kNone;
}

OpDef arithmetic(const std::string& name, const std::string& doc) {
  return {.name = name,
          .doc = doc,
          .inputs = {"a", "b"},
          .infer = infer_broadcast,
          .samples = pairs(),
          .images = {{0, 1}, {0}},
          .narrow = {NarrowArgs::Rule::Follows}};
}

// Infers the output of an operator that also accepts int32. int32 has no gradient.
std::vector<TensorType> infer_whole(const InferArgs& a) {
  want_float32_or_int32(a);
  return {{a.inputs[0].dtype, broadcast_inputs(a)}};
}

OpDef of_whole(OpDef def) {
  def.infer = infer_whole;
  for (Sample& s : pairs(DType::Int32)) def.samples.push_back(std::move(s));
  return def;
}

OpDef add() {
  OpDef def = of_whole(
      arithmetic("add", "a + b, elementwise, of float32 or int32; shapes broadcast as in NumPy."));
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    return {passed_on(b, g, 0), passed_on(b, g, 1)};
  };
  return def;
}

OpDef sub() {
  OpDef def = of_whole(
      arithmetic("sub", "a - b, elementwise, of float32 or int32; shapes broadcast as in NumPy."));
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId of_a = passed_on(b, g, 0);
    return {of_a, if_wanted(g.wanted[1], b, "scale", {passed_on(b, g, 1)}, {{"factor", -1.0}})};
  };
  return def;
}

OpDef mul() {
  OpDef def = of_whole(
      arithmetic("mul", "a * b, elementwise, of float32 or int32; shapes broadcast as in NumPy."));
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId of_a = summed(g, 0, b, "mul", {g.dy[0], g.inputs[1]});
    return {of_a, summed(g, 1, b, "mul", {g.dy[0], g.inputs[0]})};
  };
  return def;
}

OpDef div() {
  OpDef def = arithmetic(
      "div", "a / b, elementwise; shapes broadcast as in NumPy; x / 0 is infinite, 0 / 0 is NaN.");
  def.samples = pairs(DType::Float32, true);
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId of_a = summed(g, 0, b, "div", {g.dy[0], g.inputs[1]});
    if (!g.wanted[1]) return {of_a, kNone};
    const ValueId slope = b.apply("div", {g.outputs[0], g.inputs[1]});
    const ValueId product = summed(g, 1, b, "mul", {g.dy[0], slope});
    return {of_a, b.apply("scale", {product}, {{"factor", -1.0}})};
  };
  return def;
}

OpDef pow() {
  OpDef def =
      arithmetic("pow",
                 "a to the power b, elementwise as in C's pow. The gradient with respect to a is 0 "
                 "where b is 0; the gradient with respect to b is 0 where a is 0 and b >= 0.");
  def.samples = pairs(DType::Float32, true);
  def.images = {};
  def.narrow = {};
  def.grad = [](Builder& b, const GradArgs& g) -> Values {
    const ValueId zero = number(b, 0);
    ValueId of_a = kNone;
    if (g.wanted[0]) {
      const ValueId less = b.apply("sub", {g.inputs[1], number(b, 1)});
      const ValueId slope = b.apply("mul", {g.inputs[1], b.apply("pow", {g.inputs[0], less})});
      const ValueId dx = b.apply("mul", {g.dy[0], slope});
      of_a = summed(g, 0, b, "where", {b.apply("equal", {g.inputs[1], zero}), zero, dx});
    }
    if (!g.wanted[1]) return {of_a, kNone};
    const ValueId slope = b.apply("mul", {g.outputs[0], b.apply("log", {g.inputs[0]})});
    const ValueId flat = b.apply("logical_and", {b.apply("equal", {g.inputs[0], zero}),
                                                 b.apply("greater_equal", {g.inputs[1], zero})});
    return {of_a, summed(g, 1, b, "where", {flat, zero, b.apply("mul", {g.dy[0], slope})})};
  };
  return def;
}

// Returns the gradients of maximum and minimum. The selected operand gets the gradient. Equal
// operands get half each. If an operand is NaN, both get the whole gradient. `loses` is the
// comparison that is true if its first operand isn't selected.
Values choice_grad(Builder& b, const GradArgs& g, const char* loses) {
  const auto share = [&](std::size_t i) -> ValueId {
    if (!g.wanted[i]) return kNone;
    const ValueId half = b.apply("scale", {g.dy[0]}, {{"factor", 0.5}});
    const ValueId taken = b.apply("where", {b.apply("equal", g.inputs), half, g.dy[0]});
    const ValueId lost = b.apply(loses, {g.inputs[i], g.inputs[1 - i]});
    return summed(g, i, b, "where", {lost, number(b, 0), taken});
  };
  const ValueId of_a = share(0);
  return {of_a, share(1)};
}

OpDef maximum() {
  OpDef def =
      of_whole(arithmetic("maximum",
                          "The larger of a and b, elementwise, of float32 or int32; NaN where "
                          "either is NaN. Equal operands get half of the gradient each."));
  def.grad = [](Builder& b, const GradArgs& g) { return choice_grad(b, g, "less"); };
  return def;
}

OpDef minimum() {
  OpDef def =
      of_whole(arithmetic("minimum",
                          "The smaller of a and b, elementwise, of float32 or int32; NaN where "
                          "either is NaN. Equal operands get half of the gradient each."));
  def.grad = [](Builder& b, const GradArgs& g) { return choice_grad(b, g, "greater"); };
  return def;
}

std::vector<TensorType> infer_comparison(const InferArgs& a) {
  want_float32_or_int32(a);
  return {{DType::Bool, broadcast_inputs(a)}};
}

OpDef comparison(const std::string& name, const std::string& sign) {
  std::vector<Sample> samples = pairs();
  for (Sample& s : pairs(DType::Int32)) samples.push_back(std::move(s));
  return {.name = name,
          .doc = "True where a " + sign + " b, elementwise, as bool; shapes broadcast as in NumPy.",
          .inputs = {"a", "b"},
          .infer = infer_comparison,
          .samples = std::move(samples),
          .narrow = {NarrowArgs::Rule::Follows}};
}

std::vector<TensorType> infer_logical(const InferArgs& a) {
  for (std::size_t i = 0; i < a.inputs.size(); ++i) check_dtype(a, i, DType::Bool);
  return {{DType::Bool, broadcast_inputs(a)}};
}

OpDef logical(const std::string& name, const std::string& word) {
  std::vector<Sample> samples = pairs(DType::Bool);
  for (Sample& s : samples) s.integers_below = 2;
  return {.name = name,
          .doc = "a " + word + " b, elementwise, of bool; shapes broadcast as in NumPy.",
          .inputs = {"a", "b"},
          .infer = infer_logical,
          .samples = std::move(samples)};
}

OpDef logical_not() {
  const std::vector<DType> dtypes = {DType::Bool};
  return {.name = "logical_not",
          .doc = "True where x is false, elementwise, of bool.",
          .inputs = {"x"},
          .infer = infer_logical,
          .samples = {{.shapes = {{2, 3}}, .dtypes = dtypes, .integers_below = 2},
                      {.shapes = {{1}}, .dtypes = dtypes, .integers_below = 2},
                      {.shapes = {{0}}, .dtypes = dtypes}}};
}

OpDef where() {
  const std::vector<DType> dtypes = {DType::Bool, DType::Float32, DType::Float32};
  std::vector<Sample> samples;
  for (const std::vector<Shape>& shapes :
       std::vector<std::vector<Shape>>{{{2, 3}, {2, 3}, {2, 3}},
                                       {{1}, {1}, {1}},
                                       {{0, 4}, {0, 4}, {0, 4}},
                                       {{kBatch, 1, 5}, {5}, {kBatch, 3, 1}},
                                       {{kBatch, 17}, {}, {kBatch, 17}},
                                       {{kBatch, 17}, {kBatch, 17}, {}},
                                       {{4, 4}, {kBatch, 2, 4, 4}, {1}},
                                       {{kBatch, 1, 1}, {2, 3}, {2, 3}}}) {
    samples.push_back({.shapes = shapes, .dtypes = dtypes, .integers_below = 2});
  }
  return {.name = "where",
          .doc =
              "a where the bool condition is true, else b, elementwise; shapes broadcast as in "
              "NumPy. An element that is not selected has gradient 0, even if it is NaN.",
          .inputs = {"condition", "a", "b"},
          .infer = [](const InferArgs& a) -> std::vector<TensorType> {
            check_dtype(a, 0, DType::Bool);
            check_dtype(a, 1, DType::Float32);
            check_dtype(a, 2, DType::Float32);
            return {float32(broadcast_inputs(a))};
          },
          .grad = [](Builder& b, const GradArgs& g) -> Values {
            const ValueId zero = number(b, 0);
            const ValueId of_a = summed(g, 1, b, "where", {g.inputs[0], g.dy[0], zero});
            return {kNone, of_a, summed(g, 2, b, "where", {g.inputs[0], zero, g.dy[0]})};
          },
          .samples = std::move(samples),
          .narrow = {NarrowArgs::Rule::Follows}};
}

}  // namespace

std::vector<OpDef> binary() {
  return {add(),
          sub(),
          mul(),
          div(),
          pow(),
          maximum(),
          minimum(),
          comparison("less", "<"),
          comparison("less_equal", "<="),
          comparison("greater", ">"),
          comparison("greater_equal", ">="),
          comparison("equal", "=="),
          comparison("not_equal", "!="),
          logical("logical_and", "and"),
          logical("logical_or", "or"),
          logical_not(),
          where()};
}

}  // namespace hetu::def
