// Damped inverses of Kronecker factors, and gradients multiplied by them. Used by
// tensor_kernels.cu.
#pragma once
#include <cstdint>

#include "ops/tensor_kernels.h"

namespace hetu::cuda {

/// Implements TensorKernels::invert_factors. The result is NaN if a damped factor is not positive
/// definite, as on the CPU.
void invert_factors(const KroneckerCall& call);
/// Implements TensorKernels::precondition.
void precondition(float* gradient, std::int64_t rows, std::int64_t columns,
                  const float* gradient_inverse, const float* input_inverse, void* scratch);
/// Implements TensorKernels::factor_scratch.
std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs);

}  // namespace hetu::cuda
