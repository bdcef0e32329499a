// What a step takes and needs by the published closed forms, without a simulation: a quick ranking
// of configurations, and the figures of Chimera's and PipeFisher's papers. Read by search.h.
// Source: Li and Hoefler, Chimera, SC 2021, section 3.4; Osawa et al., PipeFisher, MLSys 2023,
// section 3.
#pragma once
#include <string>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"

namespace hetu {

/// A sum over `members` copies of `bytes` bytes: 2 log2(r) alpha + 2 (r - 1) / r beta bytes, alpha
/// the latency of a link and beta the inverse of its bandwidth.
double allreduce_time(const LinkCost& link, double bytes, int members);

/// The same for the gradient of a stage, unless its costs say what it takes.
double allreduce_time(const Costs& costs, const StageCost& stage, int members);

/// Copies of a stage's weights that a step sums over.
int copies_of(const std::string& method, int pairs, int pipelines);

/// What is known of a step.
struct ClosedStep {
  double forwards = 0;   ///< on the critical path
  double backwards = 0;  ///< likewise; with recompute each also forwards again
  double compute = 0;    ///< those, each with the message before it
  double allreduce = 0;  ///< of a stage's gradient
  double unhidden = 0;   ///< most of it that no worker can hide behind its idle time at the end
  double step = 0;       ///< compute + unhidden
  double work = 0;       ///< a worker's: N (f + b)
  double bubble = 0;     ///< what remains of compute without messages
  double kept = 0;       ///< most micro-batches that a worker keeps
  double bytes = 0;      ///< those, working memory, weights and their gradients; 0: not told

  double busy() const { return step > 0 ? work / step : 0; }
};

/// What K-FAC makes of it.
struct ClosedCurvature {
  double refresh_steps = 0;  ///< bubbles of so many steps take up one refresh; infinite if none do
  double filled_step = 0;    ///< with that work in bubbles: a step and the preconditioning
  double unfilled_step = 0;  ///< every step with a refresh behind it
  double bytes = 0;          ///< with saved output gradients, factors and inverses
};

/// Why a method in these sizes has no closed form; empty: it has one. Known are gpipe, 1f1b, and
/// chimera with one pair, micro-batches joined directly, and M a multiple of P.
std::string why_not_closed(const std::string& method, const Sizes& sizes);

/// Of `pipelines` copies of the pipeline. Where stages differ, the slowest stands for all. Throws
/// InvalidArgument where there is no closed form.
ClosedStep closed_step(const std::string& method, const Sizes& sizes, int pipelines,
                       const Costs& costs);

/// The costs of a micro-batch's curvature as they stand in `costs`.
ClosedCurvature closed_curvature(const std::string& method, const Sizes& sizes, int pipelines,
                                 const Costs& costs);

}  // namespace hetu
