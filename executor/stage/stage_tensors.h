// The tensors of a stage by their names, where they lie: for checkpoints, averages and tests. Part
// of train_stages.h.
#pragma once
#include <vector>

#include "executor/stage/optimizer.h"
#include "executor/stage/stage.h"
#include "executor/state/state_tensor.h"

namespace hetu {

/// Weights and optimizer states of a stage, in model order; then its buffers. Neither this nor the
/// next has tables on parameter servers.
std::vector<StateTensor> state_of(const Graph& graph, const Stage& stage,
                                  OptimizerConfig::Kind optimizer, Device& device);

/// Where the optimizer's states of a parameter of the stage lie.
void put_states(const Stage& stage, const StageParameter& parameter, SweepCall& call);

/// Gradient sums of the last step, before clipping, in model order.
std::vector<StateTensor> gradients_of(const Graph& graph, const Stage& stage);

/// As Stages::parameter_places.
std::vector<ParameterPlace> places_of(const Graph& graph, const Stage& stage, Device& device);

/// The windows of tables on parameter servers.
std::vector<TableWindow> windows_of(const Stage& stage, Device& device);

/// As Stages::persistent.
std::vector<DeviceSpan> persistent_of(const Stage& stage, bool with_buffers, Device& device);

}  // namespace hetu
