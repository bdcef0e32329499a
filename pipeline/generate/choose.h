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

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

/// The most activations that a worker may hold, in micro-batches.
struct ActivationLimit {
  double counted = kNoLimit;  ///< by the count of VerifyReport::peak_activations
  /// From F to the end of the backward: the bytes of a micro-batch are kept until its W has run.
  double live = kNoLimit;
};

/// Returns the limit of each worker of the placements. `counted` is the limit that is given in
/// micro-batches, or `otherwise`. `live` follows from the limits in bytes, and from those of the
/// costs. The bytes of a micro-batch are those of all stages of the worker, each counted at the
/// largest activation of these stages. Throws InvalidArgument with the least possible limit if not
/// even one micro-batch fits.
std::vector<ActivationLimit> activation_limits(const Schedule& placed, const Sizes& sizes,
                                               double otherwise);

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
