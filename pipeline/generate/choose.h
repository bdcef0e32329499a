// What methods share that choose by costs: limits of memory, and the better of two plans.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"

namespace hetu {

/// The costs to choose by: those given, or the default ones.
const Costs& costs_to_choose_by(const Sizes& sizes);

/// The most activations that each worker of a plan's placements may hold, in micro-batches, by the
/// limits that were given in micro-batches, in bytes and in the costs; `otherwise` where there is
/// none. Bytes count all stages of a worker at the largest of their activations. Throws
/// InvalidArgument, naming the least possible, where not even one micro-batch fits.
std::vector<double> activation_limits(const Schedule& placed, const Sizes& sizes, double otherwise);

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// A plan and what it comes to.
struct Candidate {
  Schedule plan;
  double makespan = 0;
  double span = 0;
};

/// The plan simulated (recomputed, if the sizes say so), or nothing if a worker needs more memory
/// than its limit.
std::optional<Candidate> candidate(Schedule plan, const Sizes& sizes, double otherwise);

}  // namespace hetu
