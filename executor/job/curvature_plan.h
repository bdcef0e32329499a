// K-FAC's work in a job's plan: which rows each step of the training runs. Part of train_plan.h.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/job/run_trace.h"
#include "executor/stage/optimizer.h"
#include "graph/graph.h"
#include "pipeline/cost/cost.h"
#include "pipeline/fill/curvature.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Of a graph with factors. Where the work stands after the compute of a step, the first step of a
/// cycle has all of it. In bubbles it takes several steps, so that a job, or what goes on from a
/// checkpoint within a cycle, begins with a step that has all of it, and cycles follow. Where work
/// wraps, the first of these has nothing of a cycle before, and a job goes on from no checkpoint
/// but so: what is not inverted yet is in none.
struct CurvaturePlan {
  Schedule cycle;               ///< proved
  std::vector<Schedule> steps;  ///< of the cycle, see steps_of()
  std::vector<Schedule> whole;  ///< one step with all of the work; none where the cycle has that
  std::vector<Schedule> first;  ///< steps of the cycle after `whole`; see first_of()
  std::vector<int> tap_copies;  ///< by placement: most micro-batches kept

  CurvatureOptions how;
  Costs costs;  ///< by which the work is placed in bubbles

  std::int64_t origin = 0;  ///< where `whole` runs; cycles follow
  std::int64_t since = 0;   ///< the first step that goes by it

  /// The training goes on after `done` steps.
  void begin_after(std::int64_t done);
  /// Number of a step in its cycle; -1: `whole`.
  int number_of(std::int64_t step) const;
  /// Whether that step is in a first cycle, which lacks what the others have of the one before.
  bool is_in_first(std::int64_t step) const {
    return cycle.lowering.wraps && step <= origin + static_cast<std::int64_t>(steps.size());
  }
  const Schedule& rows_of(std::int64_t step) const {
    const int number = number_of(step);
    if (number < 0) return whole.front();
    return is_in_first(step) ? first[number] : steps[number];
  }
  /// Whether that step feeds factors.
  bool feeds(int number) const;
  /// Whether it is the last one of its cycle: of the work of all workers nothing is half done.
  bool ends_at(std::int64_t step) const {
    return number_of(step) + 1 == static_cast<int>(steps.size());
  }
  /// The same work placed by other costs, for the steps after a cycle that has ended with step
  /// `done` - 1: there are inverses, so that cycles go on at once. It keeps no more micro-batches
  /// than `whole`, which keeps all. Throws as plan_curvature.
  CurvaturePlan placed_anew(const Schedule& lowered, Costs by, std::int64_t done) const;
};

/// `lowered`: one step, proved; `first_block`: of each model stage; `micro_batch`: samples. Throws
/// InvalidArgument, Config and Io (costs), Plan.
CurvaturePlan plan_curvature(const Graph& graph, const Kfac& kfac, const Schedule& lowered,
                             const std::vector<int>& first_block, std::int64_t micro_batch);

/// The runs of a trace of such a job: cycles that are there from their first step to their last,
/// and steps with all of the work. Ids of micro-batches in its events become those of the cycles.
/// What stands in part of a cycle, or in a first one where work wraps, has no plan to be laid over,
/// and is left out. `plans`: one after the other, each from its first step on.
std::vector<PlannedRun> runs_by_cycle(Trace& measured,
                                      const std::vector<const CurvaturePlan*>& plans);

}  // namespace hetu
