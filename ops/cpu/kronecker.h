// Inverses of Kronecker factors, and gradients multiplied by them; for tensor_kernels.cpp.
#pragma once
#include <cstdint>

#include "ops/factor_damping.h"
#include "ops/tensor_kernels.h"

namespace hetu::cpu {

/// The mean of the diagonal of a factor [side, side].
template <class T>
double diagonal_mean(const T* factor, std::int64_t side);

/// to = (scale factor + damping I)^-1, both [side, side], of the factor's lower triangle, by
/// Cholesky in float64; float and double alike. NaN where the sum is not positive. `scratch`: 2
/// side^2 numbers.
template <class T>
void damped_inverse(const T* factor, std::int64_t side, double scale, double damping, T* to,
                    double* scratch);

void invert_factors(const KroneckerCall& call);

/// As TensorKernels has it, of float and double (which takes no more scratch than rows * columns
/// numbers).
template <class T>
void precondition(T* gradient, std::int64_t rows, std::int64_t columns, const T* gradient_inverse,
                  const T* input_inverse, void* scratch);

/// As TensorKernels has it.
std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs);

}  // namespace hetu::cpu
