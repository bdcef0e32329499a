// A function of scalar_fns.h along elements in memory, for what finishes products.
#pragma once
#include <cstdint>

#include "ops/cpu/set_rounded.h"

namespace hetu::cpu {

/// y = F(x) for n elements, rounded to T; y may be x. The bits are those of the elementwise rows.
template <class F, class T>
void activate(const T* x, T* y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) set_rounded(y[i], F()(float(x[i])));
}

}  // namespace hetu::cpu
