// NumPy's broadcasting for inference and gradients. Shapes are aligned at their last axes. An axis
// that is missing or has length 1 is repeated. The symbolic batch broadcasts like any other length.
#pragma once
#include "ops/def/rules.h"

namespace hetu::def {

/// Returns the shape to which the inputs from `first` on broadcast together. Throws InvalidArgument
/// with the node's name and both shapes if two lengths of an axis differ and neither is 1.
Shape broadcast_inputs(const InferArgs& a, std::size_t first = 0);

/// Returns true if a tensor of shape `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

/// Returns the gradient of a value of shape `shape` that was broadcast: `dy` summed over the axes
/// along which the value was repeated. Returns `dy` itself if there are none.
ValueId sum_to(Builder& b, ValueId dy, const Shape& shape);

/// Returns a float32 scalar constant, which broadcasts to any shape.
ValueId number(Builder& b, double value);

/// Infers one float32 output: the shape to which all inputs broadcast. All inputs must be float32.
std::vector<TensorType> infer_broadcast(const InferArgs& a);

/// Reshapes dy of a reduction for its gradient. dy lacks the reduced axes. The result has length 1
/// on each axis of `axes` and the dimensions of x's shape `x` elsewhere.
ValueId with_axes(Builder& b, ValueId dy, const Shape& x, const Shape& axes);

/// Returns the attribute `axes`, counted from 0 and in ascending order, or all axes of x if it is
/// empty. Throws InvalidArgument with the node's name if x doesn't have an axis or if an axis
/// occurs twice.
Shape reduced_axes(const InferArgs& a);
/// As above, for an existing node, whose attributes are already checked.
Shape reduced_axes(const Attrs& attrs, const Shape& x);

/// Returns x's shape without `axes`, or with length 1 on them if `keep`.
Shape reduced_shape(const Shape& x, const Shape& axes, bool keep);

}  // namespace hetu::def
