// Inverses of Kronecker factors, and gradients multiplied by them; for tensor_kernels.cpp.
#pragma once
#include <cstdint>

#include "ops/tensor_kernels.h"

namespace hetu::cpu {

void invert_factors(const KroneckerCall& call);
void precondition(float* gradient, std::int64_t rows, std::int64_t columns,
                  const float* gradient_inverse, const float* input_inverse);

}  // namespace hetu::cpu
