// The target distribution of cross-entropy. The label's class and, if labels are smoothed, every
// class gets a share, times the weight of the class.
#pragma once
#include <cstdint>
#include <iterator>
#include <numeric>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {

/// The part that is known when a kernel is prepared. `input` is the index of the optional weights.
struct SmoothedClasses {
  std::int64_t classes;
  double smoothing;
  int input;
  bool weighted;
  SmoothedClasses(const KernelDesc& d, int at)
      : classes(d.inputs[0].shape[1]),
        smoothing(d.attrs->real("smoothing")),
        input(at),
        weighted(std::ssize(d.inputs) > at) {}
};

/// The targets of rows of logits. `weight` is nullptr if all classes have weight 1.
template <class T>
struct ClassTargets {
  std::int64_t classes;
  double smoothing;
  const T* weight;
  ClassTargets(const SmoothedClasses& s, const KernelCall& c)
      : classes(s.classes),
        smoothing(s.smoothing),
        weight(s.weighted ? c.in<T>(s.input) : nullptr) {}

  bool plain() const { return smoothing == 0 && weight == nullptr; }
  HETU_HD double weight_of(std::int64_t j) const {
    return weight != nullptr ? double(weight[j]) : 1.0;
  }
  /// Returns the target of the label's class, without its smoothing share.
  HETU_HD double of_label(std::int64_t label) const { return (1 - smoothing) * weight_of(label); }
  /// Returns the smoothing share of each class, before its weight is applied.
  HETU_HD double share() const { return smoothing / static_cast<double>(classes); }
  /// Returns the sum of all weighted smoothing shares.
  double shares() const {
    return weight == nullptr ? smoothing : share() * std::accumulate(weight, weight + classes, 0.0);
  }
};

}  // namespace hetu::cpu
