// What the stages of one worker need of memory beyond what the verifier reports: counted along the
// worker's row, so that a plan has exactly the slots that its run takes.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/compile/plan.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Most slots that one placement of a worker holds at once.
struct StageSlots {
  int saved = 0;           ///< copies of what forward leaves for backward
  bool recompute = false;  ///< some of its micro-batches are recomputed
  /// Boundaries to stages of the same worker: an incoming one as many slots as the receiver holds.
  std::vector<LocalBoundary> local;
};

/// Most that a worker keeps at once from forwards for backwards.
struct ActivationPeak {
  double micros = 0;       ///< in micro-batches, as verify counts them
  std::int64_t bytes = 0;  ///< of saved slots

  bool operator==(const ActivationPeak&) const = default;
};

/// The peak of a worker of a lowered plan whose placements save so many bytes per micro-batch;
/// under a run policy the most that any run of the plan comes to.
ActivationPeak planned_peak(const Schedule& lowered, int worker,
                            const std::vector<std::int64_t>& saved_bytes);

/// Per placement of a lowered plan; those of other workers stay empty. A micro-batch is saved from
/// its forward to the end of its backward; where it is recomputed, during its forward and from the
/// recompute on.
std::vector<StageSlots> stage_slots(const Schedule& lowered, int worker);

}  // namespace hetu
