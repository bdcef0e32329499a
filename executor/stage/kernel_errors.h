// The place of a kernel's error: step, micro-batch, row and field. Used by stage_functions.h.
#pragma once
#include <cstdint>

#include "graph/graph.h"
#include "ops/kernel.h"

namespace hetu {

/// The kernel that runs.
struct RunningKernel {
  const Graph* graph = nullptr;
  NodeId node = 0;
  std::int64_t micro_batch = 1;  ///< samples in a micro-batch
  int first_micro = 0;           ///< micro-batches of a step in the pipelines before this one
};

/// Must be called while an error of a kernel is handled. Throws the error with the place where it
/// occurred: the step and the micro-batch of a training, and for an index out of range also the
/// row and the field. Rethrows other exceptions unchanged.
[[noreturn]] void rethrow_with_place(const RunningKernel& kernel, const RunContext& run);

}  // namespace hetu
