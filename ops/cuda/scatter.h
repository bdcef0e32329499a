// Addition of rows to a tensor, on the device.
#pragma once
#include "ops/tensor_kernels.h"

namespace hetu::cuda {

/// Adds rows with the same index part by part, each part in ascending order. The result is added to
/// the tensor's row.
void scatter_rows(float* to, const TouchedRows& touched, const RowsOf& from);

}  // namespace hetu::cuda
