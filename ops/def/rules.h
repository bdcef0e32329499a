// What the records' rules of inference and gradient have in common. Messages read
// "linear 'fc': w must be …".
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/op_def.h"

namespace hetu::def {

/// Throws InvalidArgument "op 'name': message" unless ok; the message is formatted on failure only.
template <class... Args>
void want(bool ok, const InferArgs& a, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) {
    fail(Code::InvalidArgument, "{} '{}': {}", a.def.name, a.name,
         fmt::format(format, std::forward<Args>(args)...));
  }
}

/// Name of input i as in the schema.
const std::string& input_name(const InferArgs& a, std::size_t i);

/// Input i has this dtype.
void want_dtype(const InferArgs& a, std::size_t i, DType dtype);

/// Every input is float32.
void want_float(const InferArgs& a);

/// Input i has exactly this shape; `because` says what it follows from ("to fit x float32[2, 3]").
void want_shape(const InferArgs& a, std::size_t i, const Shape& shape, const std::string& because);

/// Input i has at least this many dimensions.
void want_rank(const InferArgs& a, std::size_t i, std::size_t least);

/// "to fit x float32[2, 3]": names input i.
std::string to_fit(const InferArgs& a, std::size_t i);

/// Outputs: one, like input 0; all inputs float32 and of one shape. For elementwise operators.
std::vector<TensorType> same_as_input(const InferArgs& a);

/// The records, of which each takes float32 or bfloat16 throughout (NarrowArgs) unless it says
/// more.
std::vector<OpDef> following(std::vector<OpDef> defs);

/// The same of operators that are worth bfloat16 for its products; `wide_inputs` and `wide_outputs`
/// stay float32.
OpDef product_of(OpDef def, std::vector<int> wide_inputs = {}, std::vector<int> wide_outputs = {});

/// Input i is images [N, C, H, W] with at least one row and column.
void want_images(const InferArgs& a, std::size_t i);

/// How many windows that span `kernel` elements fit `size` elements at the node's stride and
/// padding. Throws InvalidArgument, naming the node, if stride < 1, padding < 0 or no window fits.
std::int64_t window_count(const InferArgs& a, std::int64_t size, std::int64_t kernel);

/// Attributes of what goes along one axis.
Attrs along(std::int64_t axis);

/// The shape without its last dimension: the rows.
Shape rows(const Shape& shape);

/// Elements of a shape whose batch is one symbol: coefficient times B to a power.
struct SymbolicCount {
  std::int64_t coefficient = 1;
  int power = 0;
  bool operator==(const SymbolicCount&) const = default;
};
SymbolicCount symbolic_count(const Shape& shape);

/// Elements with one sample in the batch; for FLOPs.
std::int64_t elements(const TensorType& type);

/// FLOPs of operators that only move elements, that take each element of input 0 once, and that
/// compute a transcendental function or statistics of each.
std::int64_t no_flops(const InferArgs& a);
std::int64_t input_elements(const InferArgs& a);
std::int64_t ten_per_element(const InferArgs& a);

/// The attributes of gradients that know images x by their size alone.
inline const AttrSpec kHeightOfX = {"height", std::int64_t{0}, true, "height of x"};
inline const AttrSpec kWidthOfX = {"width", std::int64_t{0}, true, "width of x"};

inline TensorType float32(Shape shape) { return {DType::Float32, std::move(shape)}; }
inline TensorType int32(Shape shape) { return {DType::Int32, std::move(shape)}; }

/// The gradient that reached the first output. Throws InvalidArgument, naming the node, if one
/// reached another output: those are by-products without gradient.
ValueId only_dy(const GradArgs& g);

/// b.apply(op, inputs) if wanted, else kNone.
ValueId if_wanted(bool wanted, Builder& b, const std::string& op,
                  const std::vector<ValueId>& inputs, const Attrs& attrs = {});

}  // namespace hetu::def
