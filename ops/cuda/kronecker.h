// Damped inverses of Kronecker factors, and gradients multiplied by them; for tensor_kernels.cu.
#pragma once
#include <cstdint>

#include "ops/tensor_kernels.h"

namespace hetu::cuda {

/// As TensorKernels has it. NaN where a damped factor is not positive, as on the CPU.
void invert_factors(const KroneckerCall& call);
/// As TensorKernels has it.
void precondition(float* gradient, std::int64_t rows, std::int64_t columns,
                  const float* gradient_inverse, const float* input_inverse, void* scratch);
/// As TensorKernels has it.
std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs);

}  // namespace hetu::cuda
