// Scalar arithmetic of elementwise operators, written once for host and device. The loops are in
// the back ends. Details in which implementations could differ (relu at 0, the form of gelu) are
// settled here.
#pragma once
#include <cmath>

#ifdef __CUDACC__
#define HETU_HD __host__ __device__
#else
#define HETU_HD
#endif

namespace hetu::fn {

/// Returns a * b + c, rounded once if the processor has a fused multiply-add. Kernels other than
/// matrix products are compiled without contraction, so nothing else in them is fused. Hence a
/// loop's vector body and its tail round in the same manner.
HETU_HD inline float multiply_add(float a, float b, float c) {
#if defined(FP_FAST_FMAF) || defined(__CUDACC__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Functions of <cmath>, for reference kernels and devices. Vector kernels use VectorMath
/// (ops/cpu/vector_math.h) instead.
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
  template <class T>
  HETU_HD static T log(T x) {
    return std::log(x);
  }
  template <class T>
  HETU_HD static T log1p(T x) {
    return std::log1p(x);
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

/// max(x, 0).
struct Relu {
  template <class T>
  HETU_HD T operator()(T x) const {
    return x < T(0) ? T(0) : x;  // keeps NaN
  }
};

struct ReluGrad {  // the gradient at 0 is 0
  template <class T>
  HETU_HD T operator()(T x, T dy) const {
    return x > T(0) ? dy : T(0);
  }
};

/// x Φ(x), where Φ is the standard normal distribution function: the erf form, not the tanh
/// approximation. Source: Hendrycks and Gimpel 2016, section 2.
template <class Math = StdMath>
struct Gelu {
  template <class T>
  HETU_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + Math::erf(x * T(0.70710678118654752440)));
  }
};

/// dy times the derivative of Gelu at x.
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

struct TanhGrad {  // takes the output y = tanh(x)
  template <class T>
  HETU_HD T operator()(T y, T dy) const {
    return dy * (T(1) - y * y);
  }
};

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Source: Hendrycks and Gimpel 2016, section 2.
template <class Math = StdMath>
struct GeluTanh {
  template <class T>
  HETU_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + Math::tanh(inside(x)));
  }
  template <class T>
  HETU_HD static T inside(T x) {
    return T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  }
};

/// dy times the derivative of GeluTanh at x.
template <class Math = StdMath>
struct GeluTanhGrad {
  template <class T>
  HETU_HD T operator()(T x, T dy) const {
    const T t = Math::tanh(GeluTanh<Math>::inside(x));
    const T slope = T(0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
    // Where t is 1 or -1, the second term is 0 even if the slope is infinite.
    const T bend = (T(1) - t * t) * slope;
    const T rest = T(1) - t * t == T(0) ? T(0) : x * bend;
    return dy * T(0.5) * (T(1) + t + rest);
  }
};

template <class Math = StdMath>
struct Sigmoid {
  template <class T>
  HETU_HD T operator()(T x) const {
    return T(1) / (T(1) + Math::exp(-x));
  }
};

/// x * sigmoid(x).
template <class Math = StdMath>
struct Silu {
  template <class T>
  HETU_HD T operator()(T x) const {
    return x / (T(1) + Math::exp(-x));
  }
};

/// dy times the derivative of Silu at x.
template <class Math = StdMath>
struct SiluGrad {
  template <class T>
  HETU_HD T operator()(T x, T dy) const {
    const T s = T(1) / (T(1) + Math::exp(-x));
    return dy * (s * (T(1) + x * (T(1) - s)));
  }
};

/// log(1 + exp(x)), without overflow for large x.
template <class Math = StdMath>
struct Softplus {
  template <class T>
  HETU_HD T operator()(T x) const {
    const T above = x < T(0) ? T(0) : x;  // keeps NaN
    return above + Math::log1p(Math::exp(x < T(0) ? x : -x));
  }
};

template <class Math = StdMath>
struct Exp {
  template <class T>
  HETU_HD T operator()(T x) const {
    return Math::exp(x);
  }
};

template <class Math = StdMath>
struct Log {
  template <class T>
  HETU_HD T operator()(T x) const {
    return Math::log(x);
  }
};

struct Sqrt {
  template <class T>
  HETU_HD T operator()(T x) const {
    return std::sqrt(x);
  }
};

struct Rsqrt {
  template <class T>
  HETU_HD T operator()(T x) const {
    return T(1) / std::sqrt(x);
  }
};

struct Abs {
  template <class T>
  HETU_HD T operator()(T x) const {
    return std::fabs(x);
  }
};

/// -1, 0 or 1. 0 for NaN.
struct Sign {
  template <class T>
  HETU_HD T operator()(T x) const {
    const T below = x < T(0) ? T(-1) : T(0);
    return x > T(0) ? T(1) : below;
  }
};

struct Sin {
  template <class T>
  HETU_HD T operator()(T x) const {
    return std::sin(x);
  }
};

struct Cos {
  template <class T>
  HETU_HD T operator()(T x) const {
    return std::cos(x);
  }
};

struct LeakyRelu {
  template <class T>
  HETU_HD T operator()(T x, T slope) const {
    return x > T(0) ? x : x * slope;
  }
};

/// min(max(x, low), high).
struct Clip {
  template <class T>
  HETU_HD T operator()(T x, T low, T high) const {
    const T above = x < low ? low : x;  // keeps NaN
    return above > high ? high : above;
  }
};

struct Div {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a / b;
  }
};

struct Pow {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return std::pow(a, b);
  }
};

/// The larger operand; NaN if either is NaN.
struct Maximum {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};

/// The smaller operand; NaN if either is NaN.
struct Minimum {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

struct Less {
  template <class T>
  HETU_HD bool operator()(T a, T b) const {
    return a < b;
  }
};

struct LessEqual {
  template <class T>
  HETU_HD bool operator()(T a, T b) const {
    return a <= b;
  }
};

struct Equal {
  template <class T>
  HETU_HD bool operator()(T a, T b) const {
    return a == b;
  }
};

struct NotEqual {
  template <class T>
  HETU_HD bool operator()(T a, T b) const {
    return a != b;
  }
};

struct And {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a && b;
  }
};

struct Or {
  template <class T>
  HETU_HD T operator()(T a, T b) const {
    return a || b;
  }
};

/// Swaps the operands: `a > b` is `b < a`.
template <class F>
struct Swapped {
  template <class T>
  HETU_HD auto operator()(T a, T b) const {
    return F()(b, a);
  }
};

}  // namespace hetu::fn
