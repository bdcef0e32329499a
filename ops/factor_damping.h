// Damping of the two Kronecker factors of a layer before their inversion, written once for host and
// device. Used by ops/cpu/kronecker.cpp and ops/cuda/kronecker.cu.
#pragma once
#include <cmath>

#include "ops/scalar_fns.h"

namespace hetu {

/// The numbers that are added to the diagonals of the two factors.
struct FactorDamping {
  double input = 0, gradient = 0;
};

/// Returns pi * sqrt(damping) for the input factor and sqrt(damping) / pi for the gradient factor,
/// each at least 1e-7. pi = sqrt(input / gradient), where `input` and `gradient` are the means of
/// the factors' diagonals. pi is 1 if a mean isn't positive. So a layer that received no input or
/// no gradient keeps the direction of its gradient. Source: Martens, Grosse 2015, section 6.3.
HETU_HD inline FactorDamping damping_of(double input, double gradient, double damping) {
  constexpr double kLeast = 1e-7;
  const bool is_empty = !(input > 0) || !(gradient > 0);
  const double pi = is_empty ? 1 : std::sqrt(input / gradient), root = std::sqrt(damping);
  const double of_input = pi * root, of_gradient = root / pi;
  return {of_input < kLeast ? kLeast : of_input, of_gradient < kLeast ? kLeast : of_gradient};
}

}  // namespace hetu
