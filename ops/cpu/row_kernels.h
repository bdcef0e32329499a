// The row kernels of TensorKernels. ops/tensor_kernels.h documents them.
#pragma once
#include "ops/tensor_kernels.h"

namespace hetu::cpu {

void scatter_rows(float* to, const TouchedRows& touched, const RowsOf& from);
void merge_rows(float* to, const TouchedRows& of_to, float* from, const TouchedRows& of_from);
void clear_rows(float* x, const TouchedRows& touched);
void touch_filled(const float* x, const TouchedRows& touched);
void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep);

}  // namespace hetu::cpu
