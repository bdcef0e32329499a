// The input of a planning: the machines, the batch, and the configurations in question.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/progress_line.h"
#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/planner/machines.h"

namespace hetu {

/// The numbers of chunks that are tried unless a request names others.
inline constexpr std::array<int, 3> kChunksToTry = {2, 3, 4};

/// The space to search.
struct PlanRequest {
  Machines machines;
  int global_batch = 1;                ///< samples per step, over all pipelines; kept exactly
  std::vector<int> micro_batch_sizes;  ///< to try, in samples
  std::vector<std::string> methods;    ///< empty: all synchronous ones whose order is fixed
  std::vector<int> stages;             ///< workers of a pipeline to try; empty: all
  std::vector<int> pipelines;          ///< to try; empty: all
  /// Numbers of stages per worker to try, for methods that take chunks; empty: kChunksToTry.
  std::vector<int> chunks;
  bool recompute = true;  ///< also try plans with recompute
  /// Also try chimera with backwards of half micro-batches. Models with batch norm and PyTorch
  /// modules can't run these plans, and costs don't say which model they are of.
  bool halving = false;
  SyncPlace sync = kSyncPlace;
  /// The most instructions to simulate, which bounds the time of the search.
  std::int64_t budget = 60'000'000;
  ReportProgress progress;  ///< receives the number of configurations that are done; may be empty
};

/// Returns the costs with blocks for micro-batches of this many samples. May throw Config.
using CostsOfSize = std::function<Costs(int micro_batch_size)>;

/// Everything that a plan fixes except its cut and its workers.
struct PlanConfiguration {
  std::string method;
  Sizes sizes;  ///< of one pipeline; costs and run are not set
  int pipelines = 1;
  int micro_batch_size = 1;
};

/// Returns a text such as "1f1b, 2 pipelines x 4 stages, 8 micro-batches of 4 samples".
std::string to_text(const PlanConfiguration& configuration);

}  // namespace hetu
