// A list scheduler: places the F's, I's and W's of a plan with one replica in order of time. Each
// worker takes, of its ready instructions, the one that its rules prefer. The automatic method
// searches with it.
#pragma once
#include <vector>

#include "pipeline/generate/choose.h"
#include "pipeline/generate/stage_times.h"

namespace hetu {

/// Rules that choose an order in addition to costs and memory.
struct ListRules {
  std::vector<int> depth;      ///< Per placement: most micro-batches between F and I, at least 1.
  double overfill = 0;         ///< Share of a W by which it may delay the next instruction.
  bool forward_first = false;  ///< True if F goes first when F and I are ready.
  /// True if the deepest chunk goes first when F's of several chunks are ready.
  bool deep_first = true;
};

/// An order with its predicted times.
struct ListOrder {
  std::vector<std::vector<Instr>> rows;
  double makespan = 0;
  double span = 0;  ///< The largest end - start of a worker.
};

/// Orders `micros` micro-batches on the placements. `limits` holds, per worker, the most
/// activations, at least 1. The scheduler always finishes. A forward starts only
/// if memory remains for all chunks that its micro-batch still has to pass on the worker, so that
/// the oldest micro-batch can proceed.
ListOrder list_order(const Schedule& placed, const StageTimes& times,
                     const std::vector<ActivationLimit>& limits, int micros,
                     const ListRules& rules);

}  // namespace hetu
