// Elementwise functions whose results are rounded to two bytes. They take a third of the GPU time
// of those in <cmath>. Used only by the kernels.
#pragma once
#include <lanes.h>

#include <cmath>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cuda {

/// A replacement for StdMath of scalar_fns.h.
struct ShortMath {
  static constexpr float kLog2E = 1.44269504F;

  HETU_HD static float exp(float x) { return power_of_two(x * kLog2E); }

  /// Returns erf(x) with an error below 5e-7. Source: Abramowitz and Stegun, Handbook of
  /// Mathematical Functions, 7.1.26.
  HETU_HD static float erf(float x) {
    const float size = std::fabs(x), t = inverse(fn::multiply_add(0.3275911F, size, 1.0F));
    float sum = 1.061405429F;
    for (const float next : {-1.453152027F, 1.421413741F, -0.284496736F, 0.254829592F})
      sum = fn::multiply_add(sum, t, next);
    return std::copysign(fn::multiply_add(-sum * t, exp(-size * size), 1.0F), x);
  }
};

/// Returns true if all inputs and outputs of an operator are two-byte floats.
inline bool is_short(const KernelDesc& d) {
  for (const auto* types : {&d.inputs, &d.outputs})
    for (const TensorType& t : *types)
      if (!is_narrow(t.dtype)) return false;
  return true;
}

}  // namespace hetu::cuda
