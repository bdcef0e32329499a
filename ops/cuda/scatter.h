// Rows that are added to a tensor, on the device.
#pragma once
#include "ops/tensor_kernels.h"

namespace hetu::cuda {

/// Rows of one number are added part by part, in ascending order; what they make, to the row there.
void scatter_rows(float* to, const TouchedRows& touched, const RowsOf& from);

}  // namespace hetu::cuda
