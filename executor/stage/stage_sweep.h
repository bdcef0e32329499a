// An optimizer's update of one stage: all of its parameters at once. Read by train_stages.h.
#pragma once
#include <functional>

#include "executor/device/device.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/stage.h"

namespace hetu {

/// Changes the newest weights, but for tables on servers and K-FAC's factors, by their gradient
/// sums; their rounded copies, too, where the stage rounds in updates. `call_of`: what the sweep of
/// a parameter is called with, but for its tensors. Throws Unsupported if the device has no such
/// optimizer.
void sweep_stage(const Graph& graph, Stage& stage, const OptimizerConfig& optimizer, Device& device,
                 const std::function<SweepCall(const StageParameter&)>& call_of);

}  // namespace hetu
