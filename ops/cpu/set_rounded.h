// Storing float32 results at the width of a tensor, in loops that must become vector code.
#pragma once

namespace hetu::cpu {

/// to = value, rounded to T: float, BFloat16 or Float16. A function of its own, because of a
/// rounded value that is made in the body of an `omp simd` loop GCC keeps one per lane in an array,
/// and then leaves the loop scalar.
template <class T>
inline void set_rounded(T& to, float value) {
  to = T(value);
}

}  // namespace hetu::cpu
