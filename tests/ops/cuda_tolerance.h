// How near the CUDA back end's rows must come to float64. Read by the operator grids of the host
// and of a card.
#pragma once
#include "ops/kernel.h"
#include "tests/ops/samples.h"

namespace hetu::test {

/// Whose rounding bounds an output's error: statistics of a sum that is rounded first are as near
/// as the sum, and gradients of weights by cuDNN are rounded to the images' dtype.
inline DType bounding_dtype(const KernelRow& row, const Case& c, std::size_t output) {
  if (c.op == "conv2d_weight_grad" && row.implementation == std::string_view("cudnn"))
    return c.inputs[0].dtype;
  return c.outputs[c.op == "dropout_add_layer_norm" ? 0 : output].dtype;
}

/// How often a row rounds to two bytes: a bias, and what matrix units take, beside the result.
inline int roundings_of(const KernelRow& row) {
  const std::string_view op = row.op;
  return std::string_view(row.implementation).starts_with("flash") || op.starts_with("linear") ? 2
                                                                                               : 1;
}

}  // namespace hetu::test
