// Times per placement for methods that choose by costs, with speeds, links and chunks applied.
#pragma once
#include <vector>

#include "pipeline/generate/generate.h"

namespace hetu {

/// Times with one entry per placement of a plan with one replica, where placement ids are model
/// stages.
struct StageTimes {
  /// Times of the instructions; `input_grad` includes the recompute, if any.
  std::vector<double> forward, input_grad, weight_grad;
  /// From the previous stage; 0 on one worker and for the first stage.
  std::vector<double> forward_hop;
  /// From the next stage; 0 on one worker and for the last stage.
  std::vector<double> backward_hop;
};

/// Returns the times of the placements. Throws InvalidArgument if the sizes' costs don't fit them.
StageTimes stage_times(const Schedule& placed, const Sizes& sizes);

}  // namespace hetu
