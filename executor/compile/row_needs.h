// Slots and memory that a worker's stages need, beyond the numbers of the verifier. They are
// counted along the worker's row, so that a plan has exactly the slots that its run uses.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/compile/plan.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The largest number of slots that one placement holds at once.
struct StageSlots {
  int saved = 0;           ///< values that forward leaves for backward
  bool recompute = false;  ///< some micro-batches of the placement are recomputed
  /// Boundaries to stages of the same worker. An incoming boundary has as many slots as the
  /// receiver holds.
  std::vector<LocalBoundary> local;
};

/// The most activations that a worker keeps at once between forwards and backwards.
struct ActivationPeak {
  double micros = 0;       ///< in micro-batches, as verify counts them
  std::int64_t bytes = 0;  ///< size of the saved slots

  bool operator==(const ActivationPeak&) const = default;
};

/// Returns the peak of a worker of a lowered plan, where `saved_bytes` holds the bytes that each
/// placement saves per micro-batch. Under a run policy it is the maximum over all runs that the
/// policy allows.
ActivationPeak planned_peak(const Schedule& lowered, int worker,
                            const std::vector<std::int64_t>& saved_bytes);

/// Returns the slots of a worker by placement of a lowered plan; entries of other workers are
/// empty. A micro-batch is saved from its forward to the end of its backward. A recomputed
/// micro-batch is saved during its forward, and again from the recompute on.
std::vector<StageSlots> stage_slots(const Schedule& lowered, int worker);

}  // namespace hetu
