// Tolerances of the CUDA back end's rows against float64. Used by the operator grids on the host
// and on a GPU.
#pragma once
#include "ops/kernel.h"
#include "tests/ops/samples.h"

namespace hetu::test {

/// Returns the dtype whose rounding bounds an output's error. The statistics of a sum that is
/// rounded first are as exact as the sum. Weight gradients by cuDNN are rounded to the images'
/// dtype.
inline DType bounding_dtype(const KernelRow& row, const Case& c, std::size_t output) {
  if (c.op == "conv2d_weight_grad" && row.implementation == std::string_view("cudnn"))
    return c.inputs[0].dtype;
  return c.outputs[c.op == "dropout_add_layer_norm" ? 0 : output].dtype;
}

/// Returns the number of roundings to two bytes. Besides the result, a bias or the operands of
/// matrix units are rounded.
inline int roundings_of(const KernelRow& row) {
  const std::string_view op = row.op;
  return std::string_view(row.implementation).starts_with("flash") || op.starts_with("linear") ? 2
                                                                                               : 1;
}

}  // namespace hetu::test
