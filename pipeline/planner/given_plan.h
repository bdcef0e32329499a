// The prediction of a plan that the user or another system gives, by the same rules as the
// planner's own plans, so that the two can be compared.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pipeline/planner/planner.h"

namespace hetu {

/// A plan with everything fixed that the planner would search.
struct GivenPlan {
  std::string system;  ///< where it comes from: "megatron", "torch"
  /// `sizes.chunks` counts the stages of a worker. If `rows` are set, `method` only names the plan.
  PlanConfiguration configuration;
  std::optional<Schedule> rows;  ///< the computations of a file, without messages
  std::vector<int> first_block;  ///< by stage
  Assignment assignment;         ///< the worker at each place
};

/// Predicts the plan: `cut` holds its step time, and the time and bytes of each place. Memory
/// limits are not applied; see worst_excess(). Throws InvalidArgument or Plan if the method or the
/// rows are not a valid plan with a flush, or if the cut doesn't fit it. Throws as `costs`.
PlanChoice predicted(const GivenPlan& given, const PlanRequest& request, const CostsOfSize& costs);

/// Returns the place that exceeds its memory limit by the most; place -1 if all fit.
LeastExcess worst_excess(const PlanChoice& plan, const Machines& machines);

/// Returns the share of the workers' time in a step in which they compute nothing.
double idle_share(const PlanChoice& plan);

/// Returns lines that compare a given plan with the planner's answer.
std::string comparison_text(const GivenPlan& given, const PlanChoice& prediction,
                            const PlanAnswer& answer, const PlanRequest& request);

/// Returns the same as one JSON object.
std::string comparison_json(const GivenPlan& given, const PlanChoice& prediction,
                            const PlanAnswer& answer, const PlanRequest& request);

}  // namespace hetu
