// Checks and helpers shared by inference rules and gradient rules. Messages have the form "linear
// 'fc': w must be …".
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_def.h"

namespace hetu::def {

/// Throws InvalidArgument "op 'name': message" unless ok. The message is formatted only on failure.
template <class... Args>
void check(bool ok, const InferArgs& a, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) {
    fail(Code::InvalidArgument, "{} '{}': {}", a.def.name, a.name,
         fmt::format(format, std::forward<Args>(args)...));
  }
}

/// Returns the name of input i in the schema.
const std::string& input_name(const InferArgs& a, std::size_t i);

/// Checks that input i has this dtype.
void check_dtype(const InferArgs& a, std::size_t i, DType dtype);

/// Checks that every input is float32.
void check_float(const InferArgs& a);

/// Checks that input i has exactly this shape. `because` states the reason ("to fit x float32[2,
/// 3]").
void check_shape(const InferArgs& a, std::size_t i, const Shape& shape, const std::string& because);

/// Checks that input i has at least this many dimensions.
void check_rank(const InferArgs& a, std::size_t i, std::size_t least);

/// Returns text such as "to fit x float32[2, 3]" for input i.
std::string to_fit(const InferArgs& a, std::size_t i);

/// Infers one output like input 0, for elementwise operators. All inputs must be float32 and have
/// the same shape.
std::vector<TensorType> same_as_input(const InferArgs& a);

/// Sets NarrowArgs::Rule::Follows in the records and returns them. Their floating-point tensors are
/// then all float32 or all one 16-bit dtype, except the wide inputs and outputs that a record
/// lists.
std::vector<OpDef> following(std::vector<OpDef> defs);

/// Returns the record with NarrowArgs::Rule::Product, for operators whose products are worth 16
/// bits. `wide_inputs` and `wide_outputs` stay float32.
OpDef product_of(OpDef def, std::vector<int> wide_inputs = {}, std::vector<int> wide_outputs = {});

/// Checks that input i is images [N, C, H, W] with at least one channel, row and column.
void check_images(const InferArgs& a, std::size_t i);

/// Returns the number of windows spanning `kernel` elements that fit into `size` elements, at the
/// node's stride and padding. Throws InvalidArgument with the node's name if stride < 1, padding <
/// 0 or no window fits.
std::int64_t window_count(const InferArgs& a, std::int64_t size, std::int64_t kernel);

/// Returns the attributes of an operator along one axis.
Attrs along(std::int64_t axis);

/// Returns the shape without its last dimension: the shape of the rows.
Shape rows(const Shape& shape);

/// The number of elements of a shape with a symbolic batch B: coefficient * B^power.
struct SymbolicCount {
  std::int64_t coefficient = 1;
  int power = 0;
  bool operator==(const SymbolicCount&) const = default;
};
SymbolicCount symbolic_count(const Shape& shape);

/// Returns the number of elements for a batch of 1. For FLOPs.
std::int64_t elements(const TensorType& type);

/// FLOPs of operators that only move elements (none), that read each element of input 0 once, and
/// that compute a transcendental function or statistics of each element.
std::int64_t no_flops(const InferArgs& a);
std::int64_t input_elements(const InferArgs& a);
std::int64_t ten_per_element(const InferArgs& a);

/// Attributes of gradients that need only the size of the images x.
inline const AttrSpec kHeightOfX = {"height", std::int64_t{0}, true, "height of x"};
inline const AttrSpec kWidthOfX = {"width", std::int64_t{0}, true, "width of x"};

inline TensorType float32(Shape shape) { return {DType::Float32, std::move(shape)}; }
inline TensorType int32(Shape shape) { return {DType::Int32, std::move(shape)}; }

/// Returns the gradient of the first output. Throws InvalidArgument with the node's name if the
/// loss depends on another output: other outputs are by-products without gradient.
ValueId only_dy(const GradArgs& g);

/// Returns b.apply(op, inputs, attrs) if wanted, else kNone.
ValueId if_wanted(bool wanted, Builder& b, const std::string& op,
                  const std::vector<ValueId>& inputs, const Attrs& attrs = {});

}  // namespace hetu::def
