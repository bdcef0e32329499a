// Broadcasting as in NumPy, for inference and gradients: shapes are aligned at their last axes, and
// an axis of length 1, or one that is missing, is repeated. The batch broadcasts like any length.
#pragma once
#include "ops/def/rules.h"

namespace hetu::def {

/// The shape to which inputs `first`, first + 1, … broadcast together. Throws InvalidArgument,
/// naming the node and both shapes, where two lengths of an axis differ and neither is 1.
Shape broadcast_inputs(const InferArgs& a, std::size_t first = 0);

/// True if a tensor of shape `from` broadcasts to `to` alone.
bool broadcasts_to(const Shape& from, const Shape& to);

/// The gradient of a value of `shape` that was broadcast: `dy` summed over the axes along which it
/// was repeated. `dy` itself where none were.
ValueId sum_to(Builder& b, ValueId dy, const Shape& shape);

/// One float32 number that broadcasts to any shape.
ValueId number(Builder& b, double value);

/// Outputs: one float32 of the shape to which all inputs, float32, broadcast.
std::vector<TensorType> infer_broadcast(const InferArgs& a);

/// What gradients make of dy for a reduction: dy [.., without the axes, ..] as x's shape has it
/// with length 1 on each of `axes`.
ValueId with_axes(Builder& b, ValueId dy, const Shape& x, const Shape& axes);

/// The attribute `axes` counted from 0, ascending; all axes of x where it is empty. Throws
/// InvalidArgument, naming the node, for one that x has not and for one twice.
Shape reduced_axes(const InferArgs& a);
/// The same from a node that was made: no errors are left.
Shape reduced_axes(const Attrs& attrs, const Shape& x);

/// x's shape without `axes`, or with length 1 there if `keep`.
Shape reduced_shape(const Shape& x, const Shape& axes, bool keep);

}  // namespace hetu::def
