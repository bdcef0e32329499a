// The tensors of a stage, by name and location: for checkpoints, averages and tests. Part of
// train_stages.h.
#pragma once
#include <vector>

#include "executor/stage/optimizer.h"
#include "executor/stage/stage.h"
#include "executor/state/state_tensor.h"

namespace hetu {

/// Returns weights and optimizer states of a stage in model order, then its buffers. Tables on
/// parameter servers are left out, here and in gradients_of().
std::vector<StateTensor> state_of(const Graph& graph, const Stage& stage,
                                  OptimizerConfig::Kind optimizer, Device& device);

/// Sets the addresses of the parameter's optimizer states in `call`.
void put_states(const Stage& stage, const StageParameter& parameter, SweepCall& call);

/// Returns the gradient sums of the last step, before clipping, in model order.
std::vector<StateTensor> gradients_of(const Graph& graph, const Stage& stage);

/// As Stages::parameter_slices.
std::vector<ParameterSlice> slices_of(const Graph& graph, const Stage& stage, Device& device);

/// Returns the windows of the stage's tables on parameter servers.
std::vector<TableWindow> windows_of(const Stage& stage, Device& device);

/// As Stages::persistent.
std::vector<DeviceSpan> persistent_of(const Stage& stage, bool with_buffers, Device& device);

}  // namespace hetu
