// Time and memory of a step by the published closed forms, without a simulation. They give a quick
// ranking of configurations, and the figures of Chimera's and PipeFisher's papers. Read by
// search.h.
// Source: Li and Hoefler, Chimera, SC 2021, section 3.4; Osawa et al., PipeFisher, MLSys 2023,
// section 3.
#pragma once
#include <string>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"

namespace hetu {

/// Returns the time of an all-reduce of `bytes` bytes over `members` copies (r): 2 log2(r) alpha +
/// 2 (r - 1) / r beta bytes. alpha is the latency of a link and beta the inverse of its bandwidth.
double allreduce_time(const LinkCost& link, double bytes, int members);

/// As above, for the gradient of a stage. Uses the time in the costs if they have one.
double allreduce_time(const Costs& costs, const StageCost& stage, int members);

/// Returns the number of copies of a stage's weights that a step sums over.
int copies_of(const std::string& method, int pairs, int pipelines);

/// Predictions for a step. Times are in the costs' unit.
struct ClosedStep {
  double forwards = 0;   ///< number on the critical path
  double backwards = 0;  ///< number on the critical path; with recompute each includes a forward
  double compute = 0;    ///< time of both, each with the message before it
  double allreduce = 0;  ///< time of the sum of a stage's gradient
  /// largest part of it that a worker can't overlap with its idle time at the end
  double unhidden = 0;
  double step = 0;    ///< compute + unhidden
  double work = 0;    ///< compute time of a worker: N (f + b)
  double bubble = 0;  ///< idle time in compute, without messages
  double kept = 0;    ///< most micro-batches that a worker keeps
  /// kept micro-batches, working memory, weights and their gradients; 0: unknown
  double bytes = 0;

  /// Returns the share of the step in which a worker computes.
  double busy() const { return step > 0 ? work / step : 0; }
};

/// Predictions for a step with K-FAC.
struct ClosedCurvature {
  /// number of steps whose bubbles hold one refresh; infinite without bubbles
  double refresh_steps = 0;
  /// time of a step with that work in bubbles: the step and the preconditioning
  double filled_step = 0;
  double unfilled_step = 0;  ///< time of a step with a refresh after every step
  double bytes = 0;          ///< memory with saved output gradients, factors and inverses
};

/// Returns why a method with these sizes has no closed form, or "" if it has one. Closed forms
/// exist for gpipe, 1f1b, and chimera with one pair, direct concatenation, and M a multiple of P.
std::string why_not_closed(const std::string& method, const Sizes& sizes);

/// Returns the closed form for `pipelines` copies of the pipeline. If stages differ, the slowest
/// stands for all. Throws InvalidArgument if there is no closed form.
ClosedStep closed_step(const std::string& method, const Sizes& sizes, int pipelines,
                       const Costs& costs);

/// As above, for K-FAC. The curvature costs in `costs` are per micro-batch.
ClosedCurvature closed_curvature(const std::string& method, const Sizes& sizes, int pipelines,
                                 const Costs& costs);

}  // namespace hetu
