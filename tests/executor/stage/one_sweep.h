// The CPU's sweep over one parameter, and a norm, as plain functions for replays of a training.
#pragma once
#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "executor/stage/optimizer.h"

namespace hetu {

/// Applies one update. It uses only the tensors of `tensors`, their rounding, their length and
/// `decay`.
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

/// Calls `update` with the states of `call` in bfloat16, and copies the results back. The states of
/// `call` are float32 tensors whose values are exact in bfloat16.
template <class Update>
void with_narrow_states(SweepCall call, const Update& update) {
  std::vector<BFloat16> narrow[kMostStates];
  float* wide[kMostStates] = {};
  for (int i = 0; i < kMostStates; ++i) {
    wide[i] = std::exchange(call.state[i], nullptr);
    if (wide[i] == nullptr) continue;
    for (std::int64_t k = 0; k < call.elements; ++k) narrow[i].push_back(BFloat16(wide[i][k]));
    call.narrow[i] = narrow[i].data();
  }
  update(call);
  for (int i = 0; i < kMostStates; ++i) std::copy(narrow[i].begin(), narrow[i].end(), wide[i]);
}

inline double squares_of(const float* data, std::int64_t elements) {
  double sum = -1;
  const SquaresCall call = {data, elements, &sum};
  cpu_tensor_kernels().sums_of_squares({&call, 1});
  return sum;
}

}  // namespace hetu
