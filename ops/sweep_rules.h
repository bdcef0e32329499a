// Optimizer updates of a single element, written once for host and device. The back ends loop over
// them (ops/cpu/tensor_kernels.cpp, ops/cuda/tensor_kernels.cu). ops/tensor_kernels.h states the
// sources of the formulas.
#pragma once
#include <cmath>
#include <cstdint>

#include "ops/scalar_fns.h"
#include "ops/tensor_kernels.h"

namespace hetu::sweeps {

/// Values that all updates use, and the gradient after scaling and l2.
struct Common {
  float rate, factor, l2;
  explicit Common(const SweepCall& p)
      : rate(p.rate), factor(p.factor), l2(p.decay ? static_cast<float>(p.l2) : 0.0F) {}
  HETU_HD float gradient(float w, float g) const { return factor * g + l2 * w; }
};

/// Stochastic gradient descent without state.
struct Sgd : Common {
  static constexpr int kStates = 0;
  using Common::Common;
  HETU_HD void operator()(float& w, float g) const { w -= rate * gradient(w, g); }
};

/// SGD with momentum, in the classical or in Nesterov's form.
template <bool nesterov>
struct Momentum : Common {
  static constexpr int kStates = 1;
  float mu;
  explicit Momentum(const SweepCall& p) : Common(p), mu(static_cast<float>(p.momentum)) {}
  HETU_HD void operator()(float& w, float g, float& m) const {
    const float d = gradient(w, g);
    const float v = mu * m + d;
    m = v;
    w -= rate * (nesterov ? d + mu * v : v);
  }
};

/// Adagrad: divides by the root of the sum of squared gradients.
struct Adagrad : Common {
  static constexpr int kStates = 1;
  float epsilon;
  explicit Adagrad(const SweepCall& p) : Common(p), epsilon(static_cast<float>(p.epsilon)) {}
  HETU_HD void operator()(float& w, float g, float& sum) const {
    const float d = gradient(w, g);
    const float s = sum + d * d;
    sum = s;
    w -= rate * d / (std::sqrt(s) + epsilon);
  }
};

/// The moments and bias corrections that Adam's variants share in one update.
struct Moments {
  float b1, b2, a1, a2, epsilon;
  double correct1;  ///< 1 / (1 - beta1^t); 1 without correction (BertAdam)
  float root;       ///< 1 / sqrt(1 - beta2^t); 1 without correction (BertAdam)

  explicit Moments(const SweepCall& p, bool corrected = true)
      : b1(static_cast<float>(p.beta1)),
        b2(static_cast<float>(p.beta2)),
        a1(static_cast<float>(1 - p.beta1)),
        a2(static_cast<float>(1 - p.beta2)),
        epsilon(static_cast<float>(p.epsilon)),
        correct1(corrected ? 1 / (1 - power(p.beta1, p.update)) : 1),
        root(static_cast<float>(corrected ? 1 / std::sqrt(1 - power(p.beta2, p.update)) : 1)) {}

  static double power(double beta, std::int64_t update) {
    return std::pow(beta, static_cast<double>(update));
  }
  HETU_HD float first(float m, float d) const { return b1 * m + a1 * d; }
  HETU_HD float second(float v, float d) const { return b2 * v + a2 * d * d; }
};

/// Adam. `decoupled`: weight decay is separate from the gradient (AdamW, BertAdam). `corrected`:
/// with bias correction (not BertAdam).
template <bool decoupled, bool corrected = true>
struct Adam : Common {
  static constexpr int kStates = 2;
  Moments t;
  float shrink, step;
  explicit Adam(const SweepCall& p)
      : Common(p),
        t(p, corrected),
        shrink(p.decay && decoupled ? 1.0F - p.rate * static_cast<float>(p.weight_decay) : 1.0F),
        step(static_cast<float>(p.rate * t.correct1)) {
    if (decoupled) l2 = 0;
  }
  HETU_HD void operator()(float& w, float g, float& m, float& v) const {
    const float d = gradient(w, g);
    const float m1 = t.first(m, d);
    const float v1 = t.second(v, d);
    m = m1;
    v = v1;
    w = shrink * w - step * m1 / (std::sqrt(v1) * t.root + t.epsilon);
  }
};

/// Adam that divides by the root of the largest second moment so far.
struct Amsgrad : Common {
  static constexpr int kStates = 3;
  Moments t;
  float step;
  explicit Amsgrad(const SweepCall& p)
      : Common(p), t(p), step(static_cast<float>(p.rate * t.correct1)) {}
  HETU_HD void operator()(float& w, float g, float& m, float& v, float& most) const {
    const float d = gradient(w, g);
    const float m1 = t.first(m, d);
    const float v1 = t.second(v, d);
    const float top = most > v1 ? most : v1;
    m = m1;
    v = v1;
    most = top;
    w -= step * m1 / (std::sqrt(top) * t.root + t.epsilon);
  }
};

/// Two sweeps: first the moments, then the step. The step's length is known only after the norm of
/// the whole direction has been computed.
struct Lamb {
  float rate, factor, decay, correct;
  Moments t;
  explicit Lamb(const SweepCall& p)
      : rate(p.rate),
        factor(p.factor),
        decay(p.decay ? static_cast<float>(p.weight_decay) : 0.0F),
        t(p) {
    correct = static_cast<float>(t.correct1);
  }
  HETU_HD void moments(float g, float& m, float& v) const {
    const float d = factor * g;
    m = t.first(m, d);
    v = t.second(v, d);
  }
  HETU_HD float direction(float w, float m, float v) const {
    return correct * m / (std::sqrt(v) * t.root + t.epsilon) + decay * w;
  }
  /// Returns rate * trust, from the sums of squares of the weight and of the direction. trust is 1
  /// for a parameter that doesn't decay, or if a norm is 0.
  HETU_HD float length(double squares_of_weight, double squares_of_direction) const {
    double trust = 1;
    const double weight = std::sqrt(squares_of_weight), step = std::sqrt(squares_of_direction);
    if (decay > 0 && weight > 0 && step > 0) trust = weight / step;
    return static_cast<float>(rate * trust);
  }
};

}  // namespace hetu::sweeps
