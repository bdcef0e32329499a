#include "pipeline/planner/given_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "pipeline/choose/rank.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/plan/proved_plan.h"
#include "pipeline/planner/report_parts.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

// Returns costs of blocks only, as the planner prepares them.
Costs block_costs(const CostsOfSize& costs, int size) {
  Costs c = costs(size);
  require(!c.blocks.empty(), "a plan needs the costs of the model's blocks");
  guess_recompute(c);
  c.per_worker = false;
  c.cuts.clear();
  c.stages.assign(1, StageCost());
  return c;
}

void check_cut(const std::vector<int>& first_block, int stages, int blocks) {
  require(static_cast<int>(first_block.size()) == stages,
          "the plan has {} stages, but the cut has {}", stages, first_block.size());
  bool ascending = first_block.front() == 0 && first_block.back() < blocks;
  for (std::size_t s = 1; s < first_block.size(); ++s)
    ascending = ascending && first_block[s - 1] < first_block[s];
  require(ascending, "each of the {} stages needs a block, of {} in all", stages, blocks);
}

std::string mib(double bytes) { return fmt::format("{:.1f} MiB", bytes / kMiB); }

// Returns the place with the highest peak.
std::size_t peak_place(const PlanChoice& p) {
  const std::vector<double>& bytes = p.cut.peak_bytes;
  return std::max_element(bytes.begin(), bytes.end()) - bytes.begin();
}

std::string peak_text(const PlanChoice& p) {
  const std::size_t place = peak_place(p);
  return fmt::format("{} on worker {}", mib(p.cut.peak_bytes[place]), p.assignment[place]);
}

}  // namespace

PlanChoice predicted(const GivenPlan& given, const PlanRequest& request, const CostsOfSize& costs) {
  check_machines(request.machines);
  const PlanConfiguration& one = given.configuration;
  const Costs block = block_costs(costs, one.micro_batch_size);
  const BlockSums sums(block);
  const Schedule compute =
      computations({.method = one.method, .rows = given.rows, .sizes = one.sizes});
  require(!is_asynchronous(compute), "{} updates within a step; expected a flush at its end",
          one.method);
  check_cut(given.first_block, model_stages(compute), sums.blocks());
  const std::vector<int> classes = classes_of(request.machines);
  const bool alike = request.machines.pairs.empty() &&
                     std::all_of(classes.begin(), classes.end(), [](int c) { return c == 0; });
  const auto lowered_for = [&](int pipelines) {
    Lowering how;
    how.pipelines = pipelines;
    how.sync = request.sync;
    return proved_plan(compute, how).lowered;
  };
  // Two pipelines suffice if all are alike, as in the planner.
  const Schedule lowered = lowered_for(alike ? std::min(2, one.pipelines) : one.pipelines);
  const PlanShape shape(lowered);
  const std::size_t places = static_cast<std::size_t>(shape.workers()) * one.pipelines;
  const std::size_t simulated =
      static_cast<std::size_t>(shape.workers()) * lowered.lowering.pipelines;
  HETU_ASSERT(given.assignment.size() == places);
  const Assignment first(given.assignment.begin(), given.assignment.begin() + simulated);
  const CutProblem problem{lowered,       shape, sums, placed(block, request.machines, first),
                           one.pipelines, alike};
  const StepBound bound(shape, sums, problem.costs, one.pipelines, alike);
  PlanChoice choice{
      one, given.assignment, predicted_cut(problem, bound, given.first_block),
      placed(cut_costs(problem, bound, given.first_block), request.machines, given.assignment),
      lowered_for(one.pipelines)};
  for (std::size_t i = simulated; i < places; ++i) {
    choice.cut.busy.push_back(choice.cut.busy[i - simulated]);
    choice.cut.peak_bytes.push_back(choice.cut.peak_bytes[i - simulated]);
  }
  return choice;
}

LeastExcess worst_excess(const PlanChoice& plan, const Machines& machines) {
  LeastExcess worst;
  for (std::size_t i = 0; i < plan.assignment.size() && !machines.memory_bytes.empty(); ++i) {
    const double limit = machines.memory_bytes[plan.assignment[i]];
    const LeastExcess here{plan.cut.peak_bytes[i], limit, static_cast<int>(i)};
    if (limit > 0 && here.over() > 0 && (worst.place < 0 || here.over() > worst.over()))
      worst = here;
  }
  return worst;
}

double idle_share(const PlanChoice& plan) {
  const double busy = std::accumulate(plan.cut.busy.begin(), plan.cut.busy.end(), 0.0);
  return 1 - busy / (plan.cut.step_time * static_cast<double>(plan.cut.busy.size()));
}

std::string comparison_text(const GivenPlan& given, const PlanChoice& theirs,
                            const PlanAnswer& answer, const PlanRequest& request) {
  std::string text = fmt::format("compared with the plan of {}: {}\n", given.system,
                                 to_text(theirs.configuration));
  const double time = theirs.cut.step_time;
  text += fmt::format("  predicted step: {}", time_text(time, answer.time_unit));
  if (answer.best) {
    const double ratio = time / answer.best->cut.step_time - 1;
    text += fmt::format(", {:.1f} % {} the plan found", std::abs(ratio) * 100,
                        ratio < 0 ? "below" : "above");
  }
  text += fmt::format("\n  idle time of the workers: {:.1f} %", idle_share(theirs) * 100);
  if (answer.best) text += fmt::format(" (plan found: {:.1f} %)", idle_share(*answer.best) * 100);
  if (theirs.cut.peak_bytes[peak_place(theirs)] > 0) {
    text += "\n  peak memory: " + peak_text(theirs);
    if (answer.best) text += fmt::format(" (plan found: {})", peak_text(*answer.best));
  }
  if (const LeastExcess e = worst_excess(theirs, request.machines); e.place >= 0)
    text += fmt::format("\n  it doesn't fit: worker {} would need {}, and its limit is {}",
                        theirs.assignment[e.place], mib(e.needed), mib(e.limit));
  return text + "\n";
}

std::string comparison_json(const GivenPlan& given, const PlanChoice& theirs,
                            const PlanAnswer& answer, const PlanRequest& request) {
  const PlanConfiguration& c = theirs.configuration;
  json out = {{"system", given.system},
              {"method", c.method},
              {"pipelines", c.pipelines},
              {"stages", theirs.lowered.workers.size()},
              {"chunks", c.sizes.chunks},
              {"micro_batch_size", c.micro_batch_size},
              {"micro_batches", c.sizes.micro_batches},
              {"recompute", c.sizes.with_recompute},
              {"step_time", theirs.cut.step_time},
              {"idle", idle_share(theirs)},
              {"first_block", theirs.cut.first_block},
              {"workers", theirs.assignment},
              {"busy", theirs.cut.busy},
              {"peak_bytes", theirs.cut.peak_bytes},
              {"fits", worst_excess(theirs, request.machines).place < 0}};
  if (answer.best) out["excess"] = theirs.cut.step_time / answer.best->cut.step_time - 1;
  return out.dump();
}

}  // namespace hetu
