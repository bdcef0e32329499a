// What cross-entropy wants of each class: a label's share, and one of every class where labels are
// smoothed, both times the class's weight.
#pragma once
#include <cstdint>
#include <iterator>
#include <numeric>

#include "ops/kernel.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {

/// What of this a kernel knows when it is prepared; `input` is where the weights would stand.
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

/// Of rows of logits; `weight` is nullptr where all classes count 1.
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
  /// What the label has beside its share.
  HETU_HD double of_label(std::int64_t label) const { return (1 - smoothing) * weight_of(label); }
  /// What every class has, times its weight.
  HETU_HD double share() const { return smoothing / static_cast<double>(classes); }
  /// All shares together.
  double shares() const {
    return weight == nullptr ? smoothing : share() * std::accumulate(weight, weight + classes, 0.0);
  }
};

}  // namespace hetu::cpu
