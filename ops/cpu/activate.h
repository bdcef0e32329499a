// Elementwise functions on arrays, which kernels of products use to finish their results.
#pragma once
#include <cstdint>

#include "ops/cpu/set_rounded.h"

namespace hetu::cpu {

/// y = F(x) for n elements, rounded to T. y may be x. The results are bit-identical to the
/// elementwise kernels.
template <class F, class T>
void activate(const T* x, const T* /*other*/, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) set_rounded(y[i], F()(float(x[i])));
}

/// y = x + other, as above.
template <class T>
void add_other(const T* x, const T* other, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) set_rounded(y[i], float(x[i]) + float(other[i]));
}

}  // namespace hetu::cpu
