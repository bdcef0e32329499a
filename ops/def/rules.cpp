#include "ops/def/rules.h"

#include "base/limits.h"

namespace hetu::def {

const std::string& input_name(const InferArgs& a, std::size_t i) {
  if (a.def.repeats && i >= a.def.inputs.size()) return a.def.inputs.back();
  return i < a.def.inputs.size() ? a.def.inputs[i] : a.def.optional_inputs[i - a.def.inputs.size()];
}

void check_dtype(const InferArgs& a, std::size_t i, DType dtype) {
  check(a.inputs[i].dtype == dtype, a, "{} is {}, expected {}", input_name(a, i),
        to_string(a.inputs[i]), dtype_name(dtype));
}

void check_float(const InferArgs& a) {
  for (std::size_t i = 0; i < a.inputs.size(); ++i) check_dtype(a, i, DType::Float32);
}

void check_shape(const InferArgs& a, std::size_t i, const Shape& shape,
                 const std::string& because) {
  check(a.inputs[i].shape == shape, a, "{} must be {} {}, got {}", input_name(a, i),
        to_string(shape), because, to_string(a.inputs[i]));
}

void check_rank(const InferArgs& a, std::size_t i, std::size_t least) {
  check(a.inputs[i].shape.size() >= least, a, "{} must have at least {} dimensions, got {}",
        input_name(a, i), least, to_string(a.inputs[i]));
}

std::vector<OpDef> following(std::vector<OpDef> defs) {
  for (OpDef& def : defs) def.narrow.rule = NarrowArgs::Rule::Follows;
  return defs;
}

OpDef product_of(OpDef def, std::vector<int> wide_inputs, std::vector<int> wide_outputs) {
  def.narrow = {NarrowArgs::Rule::Product, std::move(wide_inputs), std::move(wide_outputs)};
  return def;
}

void check_images(const InferArgs& a, std::size_t i) {
  const Shape& shape = a.inputs[i].shape;
  check(shape.size() == 4 && shape[1] > 0 && shape[2] > 0 && shape[3] > 0, a,
        "{} must be [N, C, H, W], got {}", input_name(a, i), to_string(a.inputs[i]));
}

std::int64_t window_count(const InferArgs& a, std::int64_t size, std::int64_t kernel) {
  const std::int64_t stride = a.attrs.integer("stride"), padding = a.attrs.integer("padding");
  check(stride >= 1, a, "stride must be >= 1, got {}", stride);
  check(padding >= 0, a, "padding must be >= 0, got {}", padding);
  check(kernel <= size + 2 * padding, a, "a window of {} does not fit {} elements with padding {}",
        kernel, size, padding);
  return (size + 2 * padding - kernel) / stride + 1;
}

std::string to_fit(const InferArgs& a, std::size_t i) {
  return "to fit " + input_name(a, i) + " " + to_string(a.inputs[i]);
}

std::vector<TensorType> same_as_input(const InferArgs& a) {
  check_float(a);
  for (std::size_t i = 1; i < a.inputs.size(); ++i) {
    check_shape(a, i, a.inputs[0].shape, to_fit(a, 0));
  }
  return {a.inputs[0]};
}

Attrs along(std::int64_t axis) { return {{"axis", axis}}; }

Shape rows(const Shape& shape) { return Shape(shape.begin(), shape.end() - 1); }

SymbolicCount symbolic_count(const Shape& shape) {
  SymbolicCount count;
  for (const std::int64_t dim : shape) {
    const std::int64_t size = dim < 0 ? -dim : dim;
    // No tensor has that many elements, so the result differs from every tensor's count.
    if (size > 0 && count.coefficient > kMostElements / size) return {.coefficient = -1};
    count.coefficient *= size;
    count.power += dim < 0 ? 1 : 0;
  }
  if (count.coefficient == 0) count.power = 0;
  return count;
}

std::int64_t elements(const TensorType& type) { return element_count(bind_batch(type.shape, 1)); }

std::int64_t no_flops(const InferArgs&) { return 0; }
std::int64_t input_elements(const InferArgs& a) { return elements(a.inputs[0]); }
std::int64_t ten_per_element(const InferArgs& a) { return 10 * elements(a.inputs[0]); }

ValueId only_dy(const GradArgs& g) {
  for (std::size_t i = 1; i < g.dy.size(); ++i) {
    require(g.dy[i] == kNone,
            "differentiate: output {} of {} '{}' has no gradient, but the loss "
            "depends on it",
            i, g.node.op, g.node.name);
  }
  return g.dy[0];
}

ValueId if_wanted(bool wanted, Builder& b, const std::string& op,
                  const std::vector<ValueId>& inputs, const Attrs& attrs) {
  return wanted ? b.apply(op, inputs, attrs) : kNone;
}

}  // namespace hetu::def
