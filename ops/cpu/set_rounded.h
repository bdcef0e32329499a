// Storage of float32 results at a tensor's width, in loops that must be vectorized.
#pragma once

namespace hetu::cpu {

/// to = value, rounded to T: float, BFloat16 or Float16. This must be a separate function. If a
/// rounded value is created in the body of an `omp simd` loop, GCC keeps one per lane in an array,
/// and then doesn't vectorize the loop.
template <class T>
inline void set_rounded(T& to, float value) {
  to = T(value);
}

}  // namespace hetu::cpu
