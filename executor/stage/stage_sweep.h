// The optimizer's update of all parameters of one stage. Used by train_stages.h.
#pragma once
#include <functional>

#include "executor/device/device.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/stage.h"

namespace hetu {

/// Updates the newest weights by their gradient sums, except tables on servers and K-FAC's factors.
/// Also writes the rounded copies where the stage rounds in updates. `call_of` returns the
/// arguments of a parameter's sweep, without its tensors. Throws Unsupported if the device has no
/// such optimizer.
void sweep_stage(const Graph& graph, Stage& stage, const OptimizerConfig& optimizer, Device& device,
                 const std::function<SweepCall(const StageParameter&)>& call_of);

}  // namespace hetu
