// Optimizer sweeps on the device, over several parameters per launch. Used by the table in
// tensor_kernels.cu.
#pragma once
#include <span>

#include "ops/tensor_kernels.h"

namespace hetu::cuda {

/// Returns the sweeps by the names of their optimizers.
std::span<const SweepRow> sweep_table();
/// Implements TensorKernels::sweep_all.
void sweep_all(std::span<const SweepCall> calls, Sweep sweep);
/// Implements TensorKernels::sweep_rows. Throws Internal for LAMB, whose elements aren't
/// independent.
void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep);

}  // namespace hetu::cuda
