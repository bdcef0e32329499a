// Scalar arithmetic of elementwise operators, written once for host and device; the back ends loop
// over it. What could differ between implementations (relu at 0, the form of gelu) is decided here.
#pragma once
#include <cmath>

#ifdef __CUDACC__
#define HETU_HD __host__ __device__
#else
#define HETU_HD
#endif

namespace hetu::fn {

/// a * b + c, rounded once where the processor has an instruction for it. Kernels are compiled
/// without contraction, so that nothing else is fused: a loop's vector body and its tail round
/// alike.
HETU_HD inline float multiply_add(float a, float b, float c) {
#if defined(FP_FAST_FMAF) || defined(__CUDACC__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// The functions of <cmath>, for reference kernels and devices. Vector kernels put VectorMath
/// (ops/cpu/vector_math.h) in its place.
struct StdMath {
  template <class T>
  HETU_HD static T exp(T x) {
    return std::exp(x);
  }
  template <class T>
  HETU_HD static T erf(T x) {
    return std::erf(x);
  }
  template <class T>
  HETU_HD static T tanh(T x) {
    return std::tanh(x);
  }
};

struct Add {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a + b;
  }
};

struct Sub {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a - b;
  }
};

struct Mul {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a * b;
  }
};

struct Relu {
  template <class T>
  HETU_HD T operator()(T x) const {
    return x < T(0) ? T(0) : x;  // a NaN stays one
  }
};

struct ReluGrad {  // the gradient at 0 is 0
  template <class T>
  HETU_HD T operator()(T x, T dy) const {
    return x > T(0) ? dy : T(0);
  }
};

/// x Φ(x) with Φ the standard normal distribution: the erf form, not the tanh approximation.
/// Source: Hendrycks and Gimpel 2016, section 2.
template <class Math = StdMath>
struct Gelu {
  template <class T>
  HETU_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + Math::erf(x * T(0.70710678118654752440)));
  }
};

template <class Math = StdMath>
struct GeluGrad {
  template <class T>
  HETU_HD T operator()(T x, T dy) const {
    const T below = T(0.5) * (T(1) + Math::erf(x * T(0.70710678118654752440)));
    const T density = T(0.39894228040143267794) * Math::exp(T(-0.5) * x * x);
    return dy * (below + x * density);
  }
};

template <class Math = StdMath>
struct Tanh {
  template <class T>
  HETU_HD T operator()(T x) const {
    return Math::tanh(x);
  }
};

struct TanhGrad {  // from the output y = tanh(x)
  template <class T>
  HETU_HD T operator()(T y, T dy) const {
    return dy * (T(1) - y * y);
  }
};

}  // namespace hetu::fn
