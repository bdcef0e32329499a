#include "executor/job/job_plan.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "executor/stage/block_times.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {
namespace {

// Returns the property of a plan that training does not support, or nullptr.
const char* untrainable(const Schedule& plan) {
  if (!is_asynchronous(plan)) return nullptr;
  if (plan.placements.size() != plan.workers.size())
    return "it is asynchronous and has several stages on a worker";
  if (plan.run_policy != RunPolicy::AsPlanned)
    return "it is reordered at run time and asynchronous";
  return nullptr;
}

// Returns costs that are known without a measurement; default costs if there are fewer blocks than
// stages.
Costs costs_known(const Graph& graph, int stages) {
  return stages <= graph.blocks ? flop_costs(graph, stages) : Costs();
}

}  // namespace

Schedule JobPlan::computes(int steps) const { return computes_of(graph, options, steps); }

Schedule computes_of(const Graph& graph, const JobOptions& o, int steps) {
  const Method* method = o.plan ? nullptr : find_method(o.method);
  if (method != nullptr) refuse_foreign(*method, o.given);
  PlanSource source{
      .method = o.method, .sizes = o, .rule_at_run_time = true, .flushes = o.sync_method == "ps"};
  source.sizes.steps = steps;
  if (o.plan) {
    source.rows = without_lowering(*o.plan);
    if (!source.flushes && steps > source.rows->steps)
      source.rows = with_steps(*source.rows, steps);
  }
  Costs costs;
  if (o.split_backward || (method != nullptr && method->by_costs)) {
    costs = costs_known(graph, model_stages_of(o));
    source.costs = &costs;
    if (method != nullptr && method->by_costs) source.sizes.costs = &costs;
  }
  const Schedule compute = computations(source);
  const char* why = untrainable(compute);
  require(why == nullptr,
          "training with '{}' is not supported: {}; you can simulate and rehearse it",
          compute.method, why);
  const int width = width_of(o);
  require(
      compute.micro_batches == o.micro_batches && static_cast<int>(compute.workers.size()) == width,
      "the schedule is for {} workers and {} micro-batches; the job has {} workers and {} "
      "micro-batches per pipeline",
      compute.workers.size(), compute.micro_batches, width, o.micro_batches);
  return compute;
}

// A method is generated once for all lengths at which its rows have a body, because shorter rows
// differ. A user's own rows are not generated. They go through computes(), so that an error names
// their actual length.
Schedule JobPlan::over_steps(int steps) const {
  const Schedule& many = many_steps;
  const bool repeats = !many.workers.empty() && run_grain(many) > 0;
  if (options.plan || !repeats || steps < least_steps(many)) return computes(steps);
  return with_steps(many, steps);
}

std::vector<int> JobPlan::own_pipeline() const {
  std::vector<int> workers(width());
  for (int w = 0; w < width(); ++w) workers[w] = worker - row + w;
  return workers;
}

std::vector<int> JobPlan::copies() const {
  std::vector<int> workers;
  for (int d = 0; d < linked; ++d) workers.push_back(d * width() + row);
  return workers;
}

std::string JobPlan::stages_text() const {
  std::string text;
  for (const StageHere& here : stages)
    text += fmt::format("{}{}", text.empty() ? "" : " and ", here.stage);
  return text;
}

ActivationPeak JobPlan::planned_peak() const {
  std::vector<std::int64_t> saved(lowered.placements.size(), 0);
  for (const StageHere& here : stages) saved[here.placement] = here.saved;
  return hetu::planned_peak(lowered, row, saved);
}

Schedule JobPlan::of_run(int steps) const {
  const int least = least_steps(one_step);
  if (steps > least) {
    const int grain = run_grain(over_steps(least));
    if (grain > 0) steps = least + (steps - least) % grain;
  }
  return lower(over_steps(steps), how);
}

Schedule JobPlan::of_validation() const { return forwards_of(one_step, how); }

Schedule forwards_of(const Schedule& compute, const Lowering& how) {
  Schedule forwards = compute;
  for (Program& program : forwards.workers) {
    for (auto* part : {&program.prologue, &program.body, &program.drain}) {
      part->erase(std::remove_if(part->begin(), part->end(),
                                 [](const Instr& i) { return i.kind != Kind::Forward; }),
                  part->end());
    }
  }
  forwards.version_rule = VersionRule::Newest;
  Lowering forward = how;
  forward.reduce_scalars = true;
  forward.sharing = GradientSums{};
  Schedule plan = lower(forwards, forward);
  for (Program& program : plan.workers) {
    for (auto* part : {&program.prologue, &program.body, &program.drain})
      std::erase_if(*part, [](const Instr& i) {
        return i.kind == Kind::Update || i.kind == Kind::ReduceGrad;
      });
  }
  return plan;
}

void check_fields(const std::vector<FeedSpec>& wanted, const std::vector<Field>& given) {
  for (const Field& field : given) {
    const auto found = std::find_if(wanted.begin(), wanted.end(), [&field](const FeedSpec& spec) {
      return spec.name == field.name;
    });
    if (found == wanted.end()) continue;
    require(found->dtype == field.dtype && found->sample_shape == field.shape,
            "field '{}': the data have rows of {} {}, the model's placeholder takes {} {}. Change "
            "the placeholder, or convert the rows.",
            field.name, dtype_name(field.dtype), to_string(field.shape), dtype_name(found->dtype),
            to_string(found->sample_shape));
  }
}

}  // namespace hetu
