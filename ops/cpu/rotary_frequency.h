// Rotation frequencies of the column pairs of rotary positions, for the kernels of all back ends.
#pragma once
#include <cmath>
#include <cstdint>

#include "graph/graph.h"
#include "ops/scalar_fns.h"

namespace hetu::cpu {

/// Returns the radians per position of pair i of N / 2: base^(-2 i / N), or less for sequences
/// longer than the model was trained on. If `trained` is 0, all pairs are slowed down by `factor`.
/// Otherwise, pairs with fewer than `low` turns in `trained` positions are slowed down. Pairs with
/// more than `high` turns aren't, and the others are interpolated. Sources: Chen et al. 2023
/// (positions over a factor); Llama 3.1 in Hugging Face's transformers.
struct RotaryFrequency {
  std::int64_t N;
  double base, factor, low, high, trained;

  static RotaryFrequency of(const Attrs& attrs, std::int64_t rotated) {
    return {rotated,           attrs.real("base"), attrs.real("factor"),
            attrs.real("low"), attrs.real("high"), double(attrs.integer("trained"))};
  }

  HETU_HD double operator()(std::int64_t pair) const {
    const double full = std::pow(base, -2.0 * double(pair) / double(N));
    if (factor == 1) return full;
    if (trained == 0) return full / factor;
    const double turns = trained * full / 6.283185307179586;
    const double kept = turns <= low ? 0 : turns >= high ? 1 : (turns - low) / (high - low);
    return (1 - kept) * full / factor + kept * full;
  }
};

}  // namespace hetu::cpu
