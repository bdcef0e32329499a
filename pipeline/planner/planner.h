// The planner: given the costs of a model's blocks, workers and a global batch, finds the plan with
// the shortest step: method, stages, pipelines, micro-batch size, recompute, cut, and the worker at
// each place. The simulator is the judge, and lower bounds certify how far the answer can be from
// the optimum. `hetu plan` prints the result.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/lower/lower.h"
#include "pipeline/planner/cut_search.h"
#include "pipeline/planner/plan_request.h"

namespace hetu {

/// Result of the search for a configuration.
struct PlanVerdict {
  PlanConfiguration configuration;
  enum class Kind {
    Searched,    ///< `step_time` is that of its best plan, none of which is below `bound`
    RuledOut,    ///< it can't be faster than `bound`, which is not below the best plan's time
    DoesNotFit,  ///< no cut fits into the workers' memory
    Unfinished,  ///< the budget ended the search; it can't be faster than `bound`
    Refused      ///< the method has no such plan
  } kind = Kind::Refused;
  double step_time = 0, bound = 0;
  std::string why;  ///< one line, if it was refused or doesn't fit
};

/// The chosen plan.
struct PlanChoice {
  PlanConfiguration configuration;
  Assignment assignment;
  FoundCut cut;
  Costs costs;  ///< of its stages, on its workers
  Schedule lowered;
};

/// The answer.
struct PlanAnswer {
  std::optional<PlanChoice> best;  ///< empty: nothing fits
  /// No plan in the space is faster. Equal to the best plan's step time if it is proved optimal.
  double bound = 0;
  std::vector<PlanVerdict> verdicts;  ///< in the order of the search
  std::int64_t simulations = 0;
  std::string time_unit;
  bool recompute_guessed = false;  ///< the costs have no time of recompute: a forward is used
  /// True if the search ended without a plan before it had tried everything.
  bool unfinished() const;

  /// Returns the most by which the best plan's step is longer than the shortest possible, as a
  /// share of the latter.
  double gap() const { return best && bound > 0 ? best->cut.step_time / bound - 1 : 0; }
};

/// Searches the space. Throws InvalidArgument if the request is invalid or if no division of the
/// global batch into equal micro-batches is in the space. Throws as `costs`.
PlanAnswer find_plan(const PlanRequest& request, const CostsOfSize& costs);

/// Returns the answer as text, with the reasons for the configurations that were not chosen.
std::string to_text(const PlanAnswer& answer, const PlanRequest& request, std::size_t most);

/// Returns the answer as one JSON object.
std::string to_json(const PlanAnswer& answer, const PlanRequest& request);

/// Returns the flags of a training script by which it runs the plan, as lines of `flag: value`, for
/// `--config FILE`. The answer must have a plan.
std::string to_flags(const PlanAnswer& answer, const PlanRequest& request);

}  // namespace hetu
