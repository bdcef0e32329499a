// Inverses of Kronecker factors, and preconditioning of gradients with them; for
// tensor_kernels.cpp.
#pragma once
#include <cstdint>

#include "ops/factor_damping.h"
#include "ops/tensor_kernels.h"

namespace hetu::cpu {

/// Returns the mean of the diagonal of a factor [side, side].
template <class T>
double diagonal_mean(const T* factor, std::int64_t side);

/// to = (scale * factor + damping * I)^-1, both [side, side], by Cholesky in float64. Reads the
/// lower triangle of the factor. The result is NaN if the matrix isn't positive definite. `scratch`
/// holds 2 side^2 numbers. T is float or double.
template <class T>
void damped_inverse(const T* factor, std::int64_t side, double scale, double damping, T* to,
                    double* scratch);

/// Computes both inverses of a layer. See TensorKernels::invert_factors.
void invert_factors(const KroneckerCall& call);

/// See TensorKernels::precondition. T is float or double; double needs only rows * columns numbers
/// of scratch.
template <class T>
void precondition(T* gradient, std::int64_t rows, std::int64_t columns, const T* gradient_inverse,
                  const T* input_inverse, void* scratch);

/// See TensorKernels::factor_scratch.
std::int64_t factor_scratch(std::int64_t inputs, std::int64_t outputs);

}  // namespace hetu::cpu
