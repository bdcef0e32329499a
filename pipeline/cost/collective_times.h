// Durations of the collectives of a run, read from its events. Used for costs from traces.
#pragma once
#include <vector>

#include "base/trace.h"

namespace hetu {

/// Typical times (averages.h) over the steps of a trace, in microseconds. A collective begins when
/// its last member arrives, or when a member's previous collective ends.
struct CollectiveTimes {
  /// By model stage, for all parts of its gradient together; 0: the stage has no reduction.
  std::vector<double> reduce_grad;
  /// Time of the sum of scalars of a step.
  double reduce_scalars = 0;
};

/// Returns the times of the events of one source. `model_stage` maps placement ids, which events
/// store as their stage, to model stages. The times of scalars count from the last member's
/// arrival.
CollectiveTimes collective_times(const Trace& trace, TraceSource source,
                                 const std::vector<int>& model_stage);

}  // namespace hetu
