// How long the collectives of a run took, read from its events. Read by costs from traces.
#pragma once
#include <vector>

#include "base/trace.h"

namespace hetu {

/// Typical times (averages.h) over the steps of a trace, microseconds, each from the arrival of the
/// last member, or from the end of the collective before it, to the end.
struct CollectiveTimes {
  std::vector<double> reduce_grad;  ///< by model stage, all its parts together; 0: it has none
  double reduce_scalars = 0;
};

/// `model_stage` is that of each placement id, which the events call stage.
CollectiveTimes collective_times(const Trace& trace, TraceSource source,
                                 const std::vector<int>& model_stage);

}  // namespace hetu
