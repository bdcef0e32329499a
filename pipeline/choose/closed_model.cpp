#include "pipeline/choose/closed_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace hetu {
namespace {

bool is_chimera(const std::string& method) { return method == "chimera"; }

// Returns, for each cost, the largest of all stages: the slowest stage and the largest memory.
StageCost widest(const Costs& costs, int stages) {
  StageCost most = stage_cost(costs, 0);
  for (int s = 1; s < stages; ++s) {
    const StageCost& c = stage_cost(costs, s);
    for (double StageCost::*part :
         {&StageCost::forward, &StageCost::input_grad, &StageCost::weight_grad,
          &StageCost::recompute, &StageCost::bytes_out, &StageCost::activation_bytes,
          &StageCost::weight_bytes, &StageCost::reduce_grad, &StageCost::working_bytes})
      most.*part = std::max(most.*part, c.*part);
    for (double CurvatureCost::*part :
         {&CurvatureCost::factors, &CurvatureCost::inversion, &CurvatureCost::precondition,
          &CurvatureCost::saved_bytes, &CurvatureCost::factor_bytes})
      most.curvature.*part = std::max(most.curvature.*part, c.curvature.*part);
  }
  return most;
}

// Returns the largest part of the gradient sums that remains when a step's compute ends.
//
// In gpipe and 1f1b, stage s has its gradient s backwards before the end, and its worker idles from
// then on. In chimera, a worker has stages s < l with l + s = D - 1. Between l's gradient and the
// end it idles for D / 2 - 1 backwards, s of them after the gradient of stage s. This is the closed
// form of the base unit, with equal slots.
double unhidden(const std::string& method, int stages, double sum, double backward) {
  double most = 0;
  if (!is_chimera(method)) {
    for (int s = 0; s < stages; ++s) most = std::max(most, sum - s * backward);
    return std::max(0.0, most);
  }
  for (int s = 0; s < stages / 2; ++s) {
    const double before = (stages / 2 - 1 - s) * backward, behind = s * backward;
    most = std::max(most, std::max(0.0, sum - before) + sum - behind);
  }
  return std::max(0.0, most);
}

}  // namespace

double allreduce_time(const LinkCost& link, double bytes, int members) {
  if (members < 2) return 0;
  const double per_byte = link.bandwidth > 0 ? 1 / link.bandwidth : 0;
  return 2 * std::log2(members) * link.latency + 2.0 * (members - 1) / members * per_byte * bytes;
}

double allreduce_time(const Costs& costs, const StageCost& stage, int members) {
  if (members < 2) return 0;
  if (stage.reduce_grad > 0) return stage.reduce_grad;
  if (costs.allreduce > 0) return costs.allreduce;
  return allreduce_time(costs.link, stage.weight_bytes, members);
}

int copies_of(const std::string& method, int pairs, int pipelines) {
  return pipelines * (is_chimera(method) ? 2 * pairs : 1);
}

std::string why_not_closed(const std::string& method, const Sizes& s) {
  if (method == "gpipe" || method == "1f1b") return "";
  if (!is_chimera(method)) return "only gpipe, 1f1b and chimera have a closed form";
  if (s.pairs != 1 || s.concat != "direct")
    return "the closed form needs one pair and direct concatenation";
  if (s.stages % 2 != 0) return "the number of stages must be even";
  if (s.micro_batches % s.stages != 0)
    return "the closed form needs micro-batches that are a multiple of the stages";
  return "";
}

ClosedStep closed_step(const std::string& method, const Sizes& sizes, int pipelines,
                       const Costs& costs) {
  const std::string why = why_not_closed(method, sizes);
  require(why.empty(), "{}: {}", method, why);
  const StageCost c = widest(costs, sizes.stages);
  const int d = sizes.stages, n = sizes.micro_batches;
  const double again = sizes.with_recompute ? (c.recompute > 0 ? c.recompute : c.forward) : 0;
  const double backward = c.input_grad + c.weight_grad + again;
  const double message =
      d > 1
          ? costs.link.latency + (costs.link.bandwidth > 0 ? c.bytes_out / costs.link.bandwidth : 0)
          : 0;
  ClosedStep step;
  if (!is_chimera(method)) {
    step.forwards = step.backwards = n + d - 1;
  } else if (n == d) {
    step.forwards = d;
    step.backwards = 2.0 * d - 2;
  } else {
    step.forwards = step.backwards = n + d / 2 - 1;
  }
  step.compute = (c.forward + message) * step.forwards + (backward + message) * step.backwards;
  step.allreduce = allreduce_time(costs, c, copies_of(method, sizes.pairs, pipelines));
  step.unhidden = unhidden(method, d, step.allreduce, backward);
  step.step = step.compute + step.unhidden;
  step.work = n * (c.forward + backward);
  step.bubble = c.forward * step.forwards + backward * step.backwards - step.work;
  step.kept = method == "gpipe" ? n : std::min(n, d);
  // With recompute, one micro-batch has all activations, and every kept micro-batch has its inputs.
  // Each stage has weights and gradients, and chimera has two stages per worker.
  const double whole = sizes.with_recompute ? 1 : step.kept;
  const double inputs = sizes.with_recompute ? step.kept * c.bytes_out : 0;
  const double weights = (is_chimera(method) ? 4 : 2) * c.weight_bytes;
  step.bytes = whole * c.activation_bytes + inputs + c.working_bytes + weights;
  return step;
}

ClosedCurvature closed_curvature(const std::string& method, const Sizes& sizes, int pipelines,
                                 const Costs& costs) {
  const ClosedStep step = closed_step(method, sizes, pipelines, costs);
  const CurvatureCost k = widest(costs, sizes.stages).curvature;
  const double refresh = k.inversion + sizes.micro_batches * k.factors;
  ClosedCurvature found;
  found.refresh_steps =
      step.bubble > 0 ? refresh / step.bubble : std::numeric_limits<double>::infinity();
  found.filled_step = step.step + k.precondition;
  found.unfilled_step = found.filled_step + refresh;
  found.bytes = step.bytes + sizes.micro_batches * k.saved_bytes + 2 * k.factor_bytes;
  return found;
}

}  // namespace hetu
