// Functions along elements in memory, for what finishes products.
#pragma once
#include <cstdint>

#include "ops/cpu/set_rounded.h"

namespace hetu::cpu {

/// y = F(x) for n elements, rounded to T; y may be x. The bits are those of the elementwise rows.
template <class F, class T>
void activate(const T* x, const T* /*other*/, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) set_rounded(y[i], F()(float(x[i])));
}

/// y = x + other, the same.
template <class T>
void add_other(const T* x, const T* other, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) set_rounded(y[i], float(x[i]) + float(other[i]));
}

}  // namespace hetu::cpu
