// Rotary position embedding: positions as rotations of pairs of columns, for the queries and keys
// of attention.
#include <cmath>

#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

void check_scaling(const InferArgs& a) {
  const double factor = a.attrs.real("factor"), low = a.attrs.real("low"),
               high = a.attrs.real("high");
  const std::int64_t trained = a.attrs.integer("trained");
  check(factor > 0 && std::isfinite(factor), a, "factor must be above 0, got {}", factor);
  check(trained >= 0, a, "trained must be >= 0, got {}", trained);
  check(trained == 0 ? low == 0 && high == 0 : 0 < low && low < high && std::isfinite(high), a,
        "low and high must be 0 if trained is 0, else 0 < low < high, got {} and {}", low, high);
}

void check_attrs(const InferArgs& a) {
  const Shape& x = a.inputs[0].shape;
  const std::int64_t heads = a.attrs.integer("heads"), rotated = a.attrs.integer("rotated");
  check(heads > 0 && x[2] % heads == 0, a, "heads must divide the width {} of x {}, got {}", x[2],
        to_string(a.inputs[0]), heads);
  const std::int64_t columns = x[2] / heads, used = rotated > 0 ? rotated : columns;
  check(rotated >= 0 && rotated <= columns && used % 2 == 0, a,
        "rotated columns of a head must be an even number up to {}, got {}", columns, used);
  const double base = a.attrs.real("base");
  check(base > 0, a, "base must be above 0, got {}", base);
  check_scaling(a);
  for (const char* name : {"interleaved", "inverse"}) {
    const std::int64_t flag = a.attrs.integer(name);
    check(flag == 0 || flag == 1, a, "{} must be 0 or 1, got {}", name, flag);
  }
}

void check_positions(const InferArgs& a) {
  if (a.inputs.size() < 2) return;
  const Shape& x = a.inputs[0].shape;
  check_dtype(a, 1, DType::Int32);
  const Shape all = {x[1]}, each = {x[0], x[1]};
  check(a.inputs[1].shape == all || a.inputs[1].shape == each, a,
        "positions must be {} or {} {}, got {}", to_string(all), to_string(each), to_fit(a, 0),
        to_string(a.inputs[1]));
}

Attrs attrs_of(std::int64_t heads, std::int64_t interleaved, std::int64_t rotated = 0,
               double base = 100.0) {
  return {{"heads", heads}, {"interleaved", interleaved}, {"rotated", rotated}, {"base", base}};
}

Attrs scaled(double factor, std::int64_t trained, double low, double high) {
  Attrs attrs = attrs_of(2, 0);
  attrs.set("factor", factor);
  attrs.set("trained", trained);
  attrs.set("low", low);
  attrs.set("high", high);
  return attrs;
}

OpDef rotary_op() {
  const std::vector<DType> dtypes = {DType::Float32, DType::Int32};
  return {
      .name = "rotary",
      .doc =
          "Rotates columns i and i + n / 2 of each head of x [batch, tokens, width] by the angle "
          "position * base^(-2 i / n), where n is the number of rotated columns. For long "
          "sequences, `factor` makes the rotation slower. positions are int32 [tokens] or [batch, "
          "tokens]; the default is the index along axis 1.",
      .inputs = {"x"},
      .optional_inputs = {"positions"},
      .attrs = {{"heads", std::int64_t{1}, true, "number of heads; divides the width"},
                {"base", 10000.0, false, "base of the angles, above 0"},
                {"rotated", std::int64_t{0}, false,
                 "number of rotated columns at the start of each head, even; 0: all"},
                {"factor", 1.0, false, "divisor of the positions, above 0"},
                {"trained", std::int64_t{0}, false,
                 "number of positions that the model was trained on; above 0: factor slows only "
                 "pairs with fewer than high turns in these positions, and pairs with more than "
                 "low turns only in part"},
                {"low", 0.0, false,
                 "number of turns in `trained` positions; above 0 if trained is above 0"},
                {"high", 0.0, false,
                 "number of turns in `trained` positions; above low if trained is above 0"},
                {"interleaved", std::int64_t{0}, false, "1: columns 2 i and 2 i + 1 are a pair"},
                {"inverse", std::int64_t{0}, false, "1: rotates backwards"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_dtype(a, 0, DType::Float32);
        const Shape& x = a.inputs[0].shape;
        check(x.size() == 3 && x[1] >= 0 && x[2] >= 0, a,
              "x must be [batch, tokens, width], got {}", to_string(a.inputs[0]));
        check_attrs(a);
        check_positions(a);
        return {a.inputs[0]};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        Attrs back = g.node.attrs;
        back.set("inverse", 1 - back.integer("inverse"));
        Values inputs = g.inputs;
        inputs[0] = g.dy[0];
        Values dx(g.inputs.size(), kNone);
        dx[0] = b.apply("rotary", inputs, back);
        return dx;
      },
      .flops = [](const InferArgs& a) { return 3 * elements(a.inputs[0]); },
      .samples = {{.shapes = {{kBatch, 3, 8}}, .attrs = attrs_of(2, 0)},
                  {.shapes = {{kBatch, 3, 8}}, .attrs = attrs_of(2, 1)},
                  {.shapes = {{kBatch, 5, 30}, {kBatch, 5}},
                   .attrs = attrs_of(3, 0, 6),
                   .dtypes = dtypes,
                   .integers_below = 50},
                  {.shapes = {{kBatch, 5, 30}, {5}},
                   .attrs = attrs_of(3, 1, 4),
                   .dtypes = dtypes,
                   .integers_below = 50},
                  {.shapes = {{kBatch, 5, 16}}, .attrs = scaled(4, 0, 0, 0)},
                  {.shapes = {{kBatch, 5, 16}}, .attrs = scaled(8, 9, 0.4, 1.2)},
                  {.shapes = {{1, 1, 2}}, .attrs = attrs_of(1, 0)},
                  {.shapes = {{0, 3, 4}}, .attrs = attrs_of(1, 0)}},
  };
}

}  // namespace

std::vector<OpDef> rotary() { return following({rotary_op()}); }

}  // namespace hetu::def
