// Constants, scaling, division by a scalar, and casts.
#include "base/hex.h"
#include "ops/def/rules.h"
#include "ops/def/tables.h"

namespace hetu::def {
namespace {

using Values = std::vector<ValueId>;

OpDef fill() {
  return {
      .name = "fill",
      .doc = "A float32 constant of a static shape, every element equal to value.",
      .attrs = {{"shape", std::vector<std::int64_t>{}, true, "dimensions, without the batch"},
                {"value", 0.0, true, "value of every element"},
                {"of_loss", std::int64_t{0}, false,
                 "1: multiplied by the step's loss scale, like the gradient of the loss"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const Shape& shape = a.attrs.integers("shape");
        check(!is_symbolic(shape), a, "shape {} must not depend on the batch; use expand",
              to_string(shape));
        return {float32(shape)};
      },
      .samples = {{.attrs = {{"shape", Shape{2, 3}}, {"value", 0.5}}},
                  {.attrs = {{"shape", Shape{}}, {"value", -1.0}}},
                  {.attrs = {{"shape", Shape{}}, {"value", 0.25}, {"of_loss", std::int64_t{1}}}},
                  {.attrs = {{"shape", Shape{0}}, {"value", 1.0}}}},
  };
}

OpDef constant() {
  const auto of = [](const Shape& shape, const char* dtype, const char* data) {
    return Attrs{{"shape", shape}, {"dtype", std::string(dtype)}, {"data", std::string(data)}};
  };
  return {
      .name = "constant",
      .doc = "A constant tensor of a static shape, for values that fill cannot represent.",
      .attrs = {{"shape", Shape{}, true, "dimensions, without the batch"},
                {"dtype", std::string("float32"), true, "float32, int32 or bool"},
                {"data", std::string(), true,
                 "the elements in order, each as its bytes in hexadecimal, lowest byte first"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const TensorType type{parse_dtype(a.attrs.text("dtype")), a.attrs.integers("shape")};
        check(!is_symbolic(type.shape), a,
              "shape {} must not depend on the batch; use broadcast_to", to_string(type.shape));
        check(
            type.dtype == DType::Float32 || type.dtype == DType::Int32 || type.dtype == DType::Bool,
            a, "dtype must be float32, int32 or bool, got {}", to_string(type));
        const std::string& data = a.attrs.text("data");
        check(static_cast<std::int64_t>(data.size()) == 2 * tensor_bytes(type, 1), a,
              "{} needs {} digits, got {}", to_string(type), 2 * tensor_bytes(type, 1),
              data.size());
        check(is_hex(data), a, "data must be hexadecimal digits, 0 to 9 and a to f");
        return {type};
      },
      .flops = [](const InferArgs&) { return std::int64_t{0}; },
      .samples = {{.attrs = of({2, 2}, "float32", "0000803f000000c00000003f0000807f")},
                  {.attrs = of({3}, "int32", "0500000000000000ffffffff")},
                  {.attrs = of({2, 1}, "bool", "0100")},
                  {.attrs = of({}, "float32", "0000003f")},
                  {.attrs = of({0}, "int32", "")}},
  };
}

OpDef scale() {
  return {
      .name = "scale",
      .doc = "x * factor, elementwise; factor is rounded to float32 first.",
      .inputs = {"x"},
      .attrs = {{"factor", 1.0, true, "the constant"}},
      .infer = same_as_input,
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        return {b.apply("scale", {g.dy[0]}, g.node.attrs)};
      },
      .samples = {{.shapes = {{2, 3}}, .attrs = {{"factor", 2.5}}},
                  {.shapes = {{1}}, .attrs = {{"factor", -1.0}}},
                  {.shapes = {{0}}, .attrs = {{"factor", 3.0}}},
                  {.shapes = {{2, 3, 2, 5}}, .attrs = {{"factor", 0.5}}}},
      .images = {{0}, {0}},
      .narrow = {NarrowArgs::Rule::Follows},
  };
}

OpDef div_scalar() {
  return {
      .name = "div_scalar",
      .doc = "x / s, elementwise, for a scalar s. It has no gradient with respect to s.",
      .inputs = {"x", "s"},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        check_float(a);
        check_shape(a, 1, {}, "(a scalar)");
        return {a.inputs[0]};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        require(!g.wanted[1],
                "differentiate: div_scalar '{}' has no gradient with respect to s, which depends "
                "on a parameter; compute s from placeholders",
                g.node.name);
        return {b.apply("div_scalar", {g.dy[0], g.inputs[1]}), kNone};
      },
      .samples = {{.shapes = {{2, 3}, {}}}, {.shapes = {{}, {}}}, {.shapes = {{3, 1, 5}, {}}}},
  };
}

OpDef cast() {
  return {
      .name = "cast",
      .doc =
          "x converted to another dtype. float32 to int32 truncates toward zero and has no "
          "gradient. To bfloat16 and float16, values are rounded to the nearest, ties to even. To "
          "bool, every value except 0 is true.",
      .inputs = {"x"},
      .attrs = {{"dtype", std::string("float32"), true,
                 "float32, bfloat16, float16, int32 or bool"}},
      .infer = [](const InferArgs& a) -> std::vector<TensorType> {
        const std::string& name = a.attrs.text("dtype");
        const DType from = a.inputs[0].dtype, to = parse_dtype(name);
        const auto is = [&](DType one, DType other) {
          return (from == one && to == other) || (from == other && to == one) ||
                 (from == one && to == one);
        };
        for (const DType d : {from, to}) {
          check(d == DType::Float32 || d == DType::Int32 || d == DType::Bool ||
                    is(DType::BFloat16, DType::Float32) || is(DType::Float16, DType::Float32),
                a,
                "cast converts between float32, int32 and bool, and between bfloat16 or float16 "
                "and float32, not from {} to {}",
                to_string(a.inputs[0]), name);
        }
        return {{to, a.inputs[0].shape}};
      },
      .grad = [](Builder& b, const GradArgs& g) -> Values {
        const DType from = b.type(g.inputs[0]).dtype;
        if (b.type(g.dy[0]).dtype == from) return {g.dy[0]};
        return {b.apply("cast", {g.dy[0]}, {{"dtype", std::string(dtype_name(from))}})};
      },
      .samples = {{.shapes = {{2, 3}}, .attrs = {{"dtype", std::string("float32")}}},
                  {.shapes = {{2, 3}}, .attrs = {{"dtype", std::string("bfloat16")}}},
                  {.shapes = {{kBatch, 3, 17}}, .attrs = {{"dtype", std::string("bfloat16")}}},
                  {.shapes = {{3, 17}},
                   .attrs = {{"dtype", std::string("float32")}},
                   .dtypes = {DType::BFloat16}},
                  {.shapes = {{3, 17}}, .attrs = {{"dtype", std::string("float16")}}},
                  {.shapes = {{3, 17}},
                   .attrs = {{"dtype", std::string("float32")}},
                   .dtypes = {DType::Float16}},
                  {.shapes = {{0}}, .attrs = {{"dtype", std::string("bfloat16")}}},
                  {.shapes = {{5}},
                   .attrs = {{"dtype", std::string("float32")}},
                   .dtypes = {DType::Int32}},
                  {.shapes = {{3, 1}}, .attrs = {{"dtype", std::string("int32")}}},
                  {.shapes = {{3, 2}}, .attrs = {{"dtype", std::string("bool")}}},
                  {.shapes = {{5}},
                   .attrs = {{"dtype", std::string("float32")}},
                   .dtypes = {DType::Bool},
                   .integers_below = 2},
                  {.shapes = {{5}},
                   .attrs = {{"dtype", std::string("bool")}},
                   .dtypes = {DType::Int32}},
                  {.shapes = {{0}}, .attrs = {{"dtype", std::string("float32")}}}},
  };
}

}  // namespace

std::vector<OpDef> math() { return {fill(), constant(), scale(), div_scalar(), cast()}; }

}  // namespace hetu::def
