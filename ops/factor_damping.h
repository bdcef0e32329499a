// How much is added to the diagonals of two Kronecker factors before they are inverted, written
// once for host and device. Read by ops/cpu/kronecker.cpp and ops/cuda/kronecker.cu.
#pragma once
#include <cmath>

#include "ops/scalar_fns.h"

namespace hetu {

/// What is added to the diagonals of the two factors.
struct FactorDamping {
  double input = 0, gradient = 0;
};

/// With pi = sqrt(input / gradient) of the means of the factors' diagonals: pi and 1 / pi times the
/// root of `damping`, each at least 1e-7. pi is 1 where a mean is not positive: a layer that
/// nothing came through, or that nothing changes, keeps its gradient's direction.
/// Source: Martens, Grosse 2015, section 6.3.
HETU_HD inline FactorDamping damping_of(double input, double gradient, double damping) {
  constexpr double kLeast = 1e-7;
  const bool is_empty = !(input > 0) || !(gradient > 0);
  const double pi = is_empty ? 1 : std::sqrt(input / gradient), root = std::sqrt(damping);
  const double of_input = pi * root, of_gradient = root / pi;
  return {of_input < kLeast ? kLeast : of_input, of_gradient < kLeast ? kLeast : of_gradient};
}

}  // namespace hetu
