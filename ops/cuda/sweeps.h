// Optimizer sweeps on the device, over several parameters per launch. Used by the table in
// tensor_kernels.cu.
#pragma once
#include <span>

#include "ops/tensor_kernels.h"

namespace hetu::cuda {

std::span<const SweepRow> sweep_table();
void sweep_all(std::span<const SweepCall> calls, Sweep sweep);
void sweep_rows(const SweepCall& call, const TouchedRows& touched, Sweep sweep);

}  // namespace hetu::cuda
