// Times per placement as methods that choose by costs see them: speeds, links and chunks applied.
#pragma once
#include <vector>

#include "pipeline/generate/generate.h"

namespace hetu {

/// One entry per placement of a plan with one replica, whose ids are its model stages.
struct StageTimes {
  std::vector<double> forward, input_grad, weight_grad;  ///< input_grad with its recompute, if any
  std::vector<double> forward_hop;   ///< from the stage before; 0 on one worker and for the first
  std::vector<double> backward_hop;  ///< from the stage after; 0 on one worker and for the last
};

/// Throws InvalidArgument if the sizes' costs do not fit the placements.
StageTimes stage_times(const Schedule& placed, const Sizes& sizes);

}  // namespace hetu
