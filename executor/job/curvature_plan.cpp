// K-FAC refreshes its factors and inverses once per cycle of several steps. The example has a cycle
// of 3 steps that fills bubbles, and begins at step 0:
//
//   step    0       1  2  3    4  5  6    7 ...
//   runs    whole   cycle      cycle      cycle ...
//   number  -1      0  1  2    0  1  2    0
//
// Step `origin` runs `whole`, so that inverses exist before the first cycle ends. With
// FillRule::After there is no `whole`: the number of a step is its remainder by the cycle's length.
// A resumed job sets `origin` to its first step, and begins with `whole` again. It continues
// without `whole` if no work wraps and the checkpoint was written between two cycles, counted as if
// the job had begun at step 0. Source of the filling: Osawa et al. 2023 (PipeFisher), section 3.
#include "executor/job/curvature_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "executor/compile/plan.h"
#include "executor/stage/block_times.h"
#include "pipeline/ir/event_instr.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

void note_needs(const VerifyReport& report, std::vector<int>& copies) {
  copies.resize(report.stages.size(), 0);
  for (std::size_t i = 0; i < copies.size(); ++i)
    copies[i] = std::max(copies[i], report.stages[i].tap_copies);
}

// Computes the cycle from options and costs, and verifies it.
void place(const Schedule& lowered, CurvaturePlan& plan) {
  plan.cycle = with_curvature(lowered, plan.how, plan.costs);
  note_needs(verify(plan.cycle), plan.tap_copies);
  plan.steps = steps_of(plan.cycle);
  if (plan.cycle.lowering.wraps) plan.first = steps_of(first_of(plan.cycle));
}

// Adds the operations of the K-FAC work that does not depend on the number of samples, per sample
// like all of flop_costs. A Cholesky factor, its inverse and their product take 2 n^3 together, in
// float64 and in short sums, so that each operation counts as four. A gradient of shape [o, i] is
// multiplied by two square matrices.
Costs costs_by_flops(const Graph& graph, const std::vector<int>& first_block,
                     std::int64_t micro_batch) {
  constexpr double kInverse = 8;
  const int stages = static_cast<int>(first_block.size());
  Costs costs = flop_costs(graph, stages);
  const auto stage_of = [&](int block) {
    return std::upper_bound(first_block.begin(), first_block.end(), block) - first_block.begin() -
           1;
  };
  const auto samples = static_cast<double>(micro_batch);
  for (const GradientUse& use : graph.gradients) {
    const Parameter& factor = graph.parameters[use.parameter];
    if (factor.role == Parameter::Role::Weight) continue;
    CurvatureCost& c = costs.stages[stage_of(use.block)].curvature;
    const auto n = static_cast<double>(graph.values[factor.value].type.shape[0]);
    c.inversion += kInverse * n * n * n / samples;
    for (const Parameter& weight : graph.parameters) {
      if (weight.name != factor.factor_of) continue;
      c.precondition += 2 * n *
                        static_cast<double>(element_count(graph.values[weight.value].type.shape)) /
                        samples;
    }
  }
  return costs;
}

}  // namespace

void CurvaturePlan::begin_after(std::int64_t done) {
  const bool at_end = !cycle.lowering.wraps && done > 0 &&
                      (done - 1) % static_cast<std::int64_t>(steps.size()) == 0;
  origin = at_end ? 0 : done;
  since = std::min(since, done);
}

int CurvaturePlan::number_of(std::int64_t step) const {
  const auto length = static_cast<std::int64_t>(steps.size());
  if (whole.empty()) return static_cast<int>(step % length);
  return step <= origin ? -1 : static_cast<int>((step - origin - 1) % length);
}

bool CurvaturePlan::feeds(int number) const { return number < 0 || feeds_factors(cycle, number); }

std::vector<PlannedRun> runs_by_cycle(Trace& measured,
                                      const std::vector<const CurvaturePlan*>& plans) {
  std::set<int> there;
  for (const TraceEvent& e : measured.events) there.insert(e.step);
  std::vector<PlannedRun> runs;
  // By step, the number that is added to its micro-batch ids. Steps without a plan are missing.
  std::map<int, int> raised;
  for (const int step : there) {
    const auto of = std::find_if(plans.rbegin(), plans.rend(),
                                 [&](const CurvaturePlan* p) { return p->since <= step; });
    if (of == plans.rend()) continue;
    const CurvaturePlan& plan = **of;
    const int at = plan.number_of(step), length = static_cast<int>(plan.steps.size());
    if (at > 0) continue;
    if (at < 0) {
      runs.push_back({step, plan.whole.front()});
      raised[step] = 0;
      continue;
    }
    bool whole = !plan.is_in_first(step);
    for (int k = 0; k < length; ++k) whole = whole && there.count(step + k) > 0;
    if (!whole) continue;
    runs.push_back({step, plan.cycle});
    for (int k = 0; k < length; ++k) raised[step + k] = k * plan.cycle.micro_batches;
  }
  std::erase_if(measured.events, [&](const TraceEvent& e) { return raised.count(e.step) == 0; });
  for (TraceEvent& e : measured.events) {
    const std::optional<Instr> instr = instr_of(e);
    if (e.micro >= 0 && instr && !is_curvature(instr->kind)) e.micro += raised.at(e.step);
  }
  return runs;
}

CurvaturePlan CurvaturePlan::placed_anew(const Schedule& lowered, Costs by,
                                         std::int64_t done) const {
  CurvaturePlan anew;
  anew.how = how;
  anew.costs = std::move(by);
  anew.tap_copies = tap_copies;
  anew.whole = whole;
  anew.origin = done - 1;
  anew.since = done;
  place(lowered, anew);
  return anew;
}

Feature kfac_needs() {
  return {"K-FAC",
          {{Trait::WorkerUpdates, "Choose --sync-method allreduce"},
           {Trait::Flush, "Choose a method such as 1f1b, zb-h1 or chimera"}}};
}

CurvaturePlan plan_curvature(const Graph& graph, const Kfac& kfac, const Schedule& lowered,
                             const std::vector<int>& first_block, std::int64_t micro_batch) {
  CurvaturePlan plan;
  CurvatureOptions& how = plan.how;
  how.layers = factor_layers(graph, first_block);
  how.every = kfac.every;
  how.rule = parse_fill_rule(kfac.fill);
  how.makers = parse_inverse_makers(kfac.inverses);
  const bool filled = how.rule != FillRule::After;
  require(filled || kfac.costs.empty(),
          "costs of K-FAC apply only to fill best and wrap, which place its work by cost, got fill "
          "{}; remove the costs or change fill",
          kfac.fill);
  require(filled || kfac.replan == 0,
          "replan applies only to fill best and wrap, which place K-FAC's work by cost, got fill "
          "{}; remove replan or change fill",
          kfac.fill);
  if (filled)
    plan.costs = kfac.costs.empty() ? costs_by_flops(graph, first_block, micro_batch)
                                    : read_costs(kfac.costs);
  place(lowered, plan);
  if (!filled) return plan;
  CurvatureOptions at_once = how;
  at_once.rule = FillRule::After;
  at_once.every = 1;
  const Schedule whole = with_curvature(lowered, at_once, plan.costs);
  note_needs(verify(whole), plan.tap_copies);
  plan.whole = steps_of(whole);
  return plan;
}

}  // namespace hetu
