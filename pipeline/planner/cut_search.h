// The search for the best cut of a model into the stages of one plan on assigned workers. The
// simulator judges every cut that the lower bounds don't rule out.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/planner/bound.h"
#include "pipeline/planner/machines.h"

namespace hetu {

/// A plan whose cut is searched for.
struct CutProblem {
  /// With messages, sums and updates; it doesn't depend on the cut. If the pipelines are alike, two
  /// of them suffice, because they run at the same times.
  const Schedule& lowered;
  const PlanShape& shape;
  const BlockSums& sums;
  /// With blocks; speeds, memory limits and links by place (placed()), of the first pipelines of
  /// `lowered`.
  Costs costs;
  int pipelines = 1;   ///< all of them
  bool alike = false;  ///< true if all workers and links are alike
};

/// The best plan so far. A plan is better if it is faster, or as fast with a smaller peak.
struct Standing {
  double time = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();  ///< of the worker with the highest peak
};

/// Work that a search may still do, counted in simulated instructions, so that results don't depend
/// on the machine's speed.
struct SearchBudget {
  std::int64_t instructions = 0;
  std::int64_t simulations = 0;  ///< number done
};

/// A cut and its prediction.
struct FoundCut {
  std::vector<int> first_block;  ///< by stage
  double step_time = 0;
  std::vector<double> peak_bytes;  ///< by place, with working memory
  std::vector<double> busy;        ///< by place: time of computations
};

/// The result of a search.
struct CutSearch {
  std::optional<FoundCut> best;  ///< the best cut, if it is better than the plan so far
  /// No cut is faster than this. Equal to the best time known if the search is complete.
  double bound = 0;
  bool complete = true;  ///< false: the budget was used up
  LeastExcess excess;    ///< the least of the cuts that were refused for their memory
};

/// Returns the costs of a cut: the stages' costs, and the times of sums over copies.
Costs cut_costs(const CutProblem& problem, const StepBound& bound,
                const std::vector<int>& first_block);

/// Simulates one cut and returns its prediction, whatever the memory limits are.
FoundCut predicted_cut(const CutProblem& problem, const StepBound& bound,
                       const std::vector<int>& first_block);

/// Searches the cuts in the order of their lower bounds until none can be faster than the best one
/// or than the one so far. A stage has at least one block.
CutSearch search_cuts(const CutProblem& problem, const StepBound& bound, const Standing& so_far,
                      SearchBudget& budget);

/// Simulates only the cut that balances the bounds best (StepBound::balanced).
CutSearch try_balanced_cut(const CutProblem& problem, const StepBound& bound,
                           const Standing& so_far, SearchBudget& budget);

}  // namespace hetu
