// Functions shared by the methods that choose by costs: limits of memory, and the comparison of
// plans.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"

namespace hetu {

/// Returns the given costs, or the default costs if the sizes have none.
const Costs& costs_to_choose_by(const Sizes& sizes);

/// Returns the most activations that each worker of the placements may hold, in micro-batches. The
/// limits are those given in micro-batches and in bytes, and those of the costs. `otherwise`
/// applies if there is no limit. The bytes of a micro-batch are those of all stages of the worker,
/// each counted at the largest activation of these stages. Throws InvalidArgument with the least
/// possible limit if not even one micro-batch fits.
std::vector<double> activation_limits(const Schedule& placed, const Sizes& sizes, double otherwise);

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// A plan and its predicted times.
struct Candidate {
  Schedule plan;
  double makespan = 0;
  double span = 0;
};

/// Returns the plan with its simulated times, or nullopt if a worker needs more memory than its
/// limit. Simulates the recomputed plan if the sizes request recomputing. `otherwise` is the limit
/// in micro-batches if the sizes have none.
std::optional<Candidate> candidate(Schedule plan, const Sizes& sizes, double otherwise);

}  // namespace hetu
