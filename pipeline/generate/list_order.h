// A list scheduler: places F, I and W of a plan with one replica in order of time, each worker
// taking what its rules prefer of what it has. What the automatic method searches with.
#pragma once
#include <vector>

#include "pipeline/generate/stage_times.h"

namespace hetu {

/// What an order is chosen by, beside costs and memory.
struct ListRules {
  std::vector<int> depth;      ///< per placement: most micro-batches between F and I, at least 1
  double overfill = 0;         ///< a W may end this share of itself after what it makes wait
  bool forward_first = false;  ///< where F and I are ready: F
  bool deep_first = true;      ///< where F's of several chunks are ready: the deepest
};

struct ListOrder {
  std::vector<std::vector<Instr>> rows;
  double makespan = 0;
  double span = 0;  ///< the largest end - start of a worker
};

/// Orders `micros` micro-batches on the placements. `limits` per worker: activations in
/// micro-batches, at least 1. Always comes to an end: a forward leaves room for the chunks that its
/// micro-batch still has to pass on the worker, so that the oldest one can go on.
ListOrder list_order(const Schedule& placed, const StageTimes& times,
                     const std::vector<double>& limits, int micros, const ListRules& rules);

}  // namespace hetu
