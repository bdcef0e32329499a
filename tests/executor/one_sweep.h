// The CPU's sweep over one parameter, and a norm, as plain functions: what replays of a training
// compute with.
#pragma once
#include <algorithm>
#include <iterator>

#include "executor/stage/optimizer.h"

namespace hetu {

/// Of `tensors` only the tensors count, how they are rounded, their length and `decay`.
inline void apply_update(const OptimizerConfig& config, const SweepCall& tensors, double factor,
                         std::int64_t update) {
  SweepCall call = sweep_call(config, factor, update);
  call.weight = tensors.weight;
  call.gradient = tensors.gradient;
  std::copy(std::begin(tensors.state), std::end(tensors.state), call.state);
  std::copy(std::begin(tensors.narrow), std::end(tensors.narrow), call.narrow);
  std::copy(std::begin(tensors.rounding), std::end(tensors.rounding), call.rounding);
  call.elements = tensors.elements;
  call.decay = tensors.decay;
  cpu_tensor_kernels().sweep(optimizer_name(config.kind))(call);
}

inline double squares_of(const float* data, std::int64_t elements) {
  double sum = -1;
  cpu_tensor_kernels().sum_of_squares(data, elements, &sum);
  return sum;
}

}  // namespace hetu
