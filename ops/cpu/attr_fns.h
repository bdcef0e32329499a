// Functions of one element with constants from a node's attributes, for reference and vector
// kernels.
#pragma once
#include <cmath>

#include "graph/graph.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {

template <class T>
struct Scale {
  T factor;
  explicit Scale(const Attrs& a) : factor(static_cast<T>(a.real("factor"))) {}
  HETU_HD T operator()(T x) const { return x * factor; }
};

template <class T>
struct LeakyRelu {
  T slope;
  explicit LeakyRelu(const Attrs& a) : slope(static_cast<T>(a.real("slope"))) {}
  HETU_HD T operator()(T x) const { return fn::LeakyRelu()(x, slope); }
};

template <class T>
struct Clip {
  T low, high;
  explicit Clip(const Attrs& a)
      : low(static_cast<T>(a.real("low"))), high(static_cast<T>(a.real("high"))) {}
  HETU_HD T operator()(T x) const { return fn::Clip()(x, low, high); }
};

/// x^exponent. The exponents that models use (-1, -1/2, 1/2, 1, 2 and 3) need no call of pow.
template <class T>
struct Power {
  T exponent;
  explicit Power(const Attrs& a) : exponent(static_cast<T>(a.real("exponent"))) {}
  HETU_HD T operator()(T x) const {
    if (exponent == T(2)) return x * x;
    if (exponent == T(3)) return x * x * x;
    if (exponent == T(1)) return x;
    if (exponent == T(-1)) return T(1) / x;
    if (exponent == T(0.5)) return std::sqrt(x);
    if (exponent == T(-0.5)) return T(1) / std::sqrt(x);
    return std::pow(x, exponent);
  }
};

}  // namespace hetu::cpu
