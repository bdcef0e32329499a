// K-FAC's work in a job's plan: the rows that each training step runs. Part of job_plan.h.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/job/feature.h"
#include "executor/job/run_trace.h"
#include "executor/stage/optimizer.h"
#include "graph/graph.h"
#include "pipeline/cost/cost.h"
#include "pipeline/fill/curvature.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// The K-FAC work of a graph with factors, as a cycle of steps.
///
/// With FillRule::After, the work follows the compute of a step, and the first step of a cycle
/// contains all of it. With the other rules the work fills bubbles of several steps. A job then
/// begins with one step that contains all of the work (`whole`), and cycles follow. The same holds
/// for a job that resumes from a checkpoint within a cycle.
///
/// With FillRule::Wrap, part of a cycle's work runs in the next cycle. The first cycle therefore
/// lacks the work of a previous one. Such a job always resumes with `whole`, because no checkpoint
/// contains the factors that are not inverted yet.
struct CurvaturePlan {
  Schedule cycle;               ///< verified
  std::vector<Schedule> steps;  ///< steps of the cycle, see steps_of()
  std::vector<Schedule> whole;  ///< one step with all of the work; empty if the cycle has that
  std::vector<Schedule> first;  ///< steps of the first cycle after `whole`, if work wraps; see
                                ///< first_of()
  std::vector<int> tap_copies;  ///< by placement: the most micro-batches whose taps are kept

  CurvatureOptions how;
  Costs costs;  ///< costs by which the work is placed in bubbles

  std::int64_t origin = 0;  ///< step that runs `whole`; cycles follow
  std::int64_t since = 0;   ///< first step that uses this plan

  /// Plans the steps of a training that continues after `done` steps.
  void begin_after(std::int64_t done);
  /// Returns the index of a step in its cycle; -1 for a step that runs `whole`.
  int number_of(std::int64_t step) const;
  /// Returns true if the step belongs to a first cycle, which lacks the wrapped work of a previous
  /// cycle.
  bool is_in_first(std::int64_t step) const {
    return cycle.lowering.wraps && step <= origin + static_cast<std::int64_t>(steps.size());
  }
  /// Returns the rows that the step runs.
  const Schedule& rows_of(std::int64_t step) const {
    const int number = number_of(step);
    if (number < 0) return whole.front();
    return is_in_first(step) ? first[number] : steps[number];
  }
  /// Returns true if the step of this number (see number_of) feeds the factors.
  bool feeds(int number) const;
  /// Returns true if the step is the last of its cycle, so that no worker has unfinished work.
  bool ends_at(std::int64_t step) const {
    return number_of(step) + 1 == static_cast<int>(steps.size());
  }
  /// Returns the same work placed by other costs, for the steps after a cycle that ended with step
  /// `done` - 1. Inverses exist at that point, so that cycles continue without a `whole` step. The
  /// new plan keeps no more micro-batches than `whole`, which keeps all of them. Throws as
  /// plan_curvature.
  CurvaturePlan placed_anew(const Schedule& lowered, Costs by, std::int64_t done) const;
};

/// Returns the needs of K-FAC. It multiplies gradients once they are complete and before their
/// global norm is known.
Feature kfac_needs();

/// Plans the K-FAC work of a job. `lowered` is the verified plan of one step, `first_block` has the
/// first block of each model stage, and `micro_batch` is the number of samples in a micro-batch.
/// Throws InvalidArgument, Config and Io (for a cost file), and Plan.
CurvaturePlan plan_curvature(const Graph& graph, const Kfac& kfac, const Schedule& lowered,
                             const std::vector<int>& first_block, std::int64_t micro_batch);

/// Returns the runs in the trace of a job with K-FAC: cycles that were recorded from their first
/// step to their last, and steps with all of the work. Ids of micro-batches in the events become
/// those of the cycles. Removes the events of incomplete cycles and, where work wraps, of first
/// cycles, because they have no plan to compare with. `plans`: consecutive plans, each valid from
/// its step `since` on.
std::vector<PlannedRun> runs_by_cycle(Trace& measured,
                                      const std::vector<const CurvaturePlan*>& plans);

}  // namespace hetu
