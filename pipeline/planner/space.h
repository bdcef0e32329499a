// The space of configurations that a planning searches.
#pragma once
#include <functional>
#include <vector>

#include "pipeline/planner/plan_request.h"

namespace hetu {

/// Returns the number of blocks of the model, from the costs for micro-batches of this many
/// samples.
using BlocksOfSize = std::function<int(int micro_batch_size)>;

/// Returns the configurations of all grids, methods and micro-batch sizes of the request that keep
/// its global batch. Throws InvalidArgument for an unknown method or one without a flush, and if no
/// division of the global batch into equal micro-batches is in the space. Throws as `blocks`.
std::vector<PlanConfiguration> planner_space(const PlanRequest& request,
                                             const BlocksOfSize& blocks);

}  // namespace hetu
