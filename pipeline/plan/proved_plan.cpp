#include "pipeline/plan/proved_plan.h"

#include <algorithm>

#include "base/error.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {
namespace {

// Returns the rows of the method, with the run policy if the run applies the runtime rule.
Schedule generated(const PlanSource& source) {
  Sizes sizes = source.sizes;
  sizes.runtime_rule = sizes.runtime_rule && !source.rule_at_run_time;
  if (source.flushes) sizes.steps = 1;  // with_flushes() repeats the step
  return generate(source.method, sizes);
}

void set_run_policy(const PlanSource& source, Schedule& plan) {
  const Method* method = source.rows ? nullptr : find_method(source.method);
  require(method != nullptr && takes(*method, "runtime-rule"),
          "--runtime-rule does not apply to {}", plan.method);
  plan.run_policy = RunPolicy::ForwardBeforeLateGradient;
}

}  // namespace

Schedule computations(const PlanSource& source) {
  const Sizes& sizes = source.sizes;
  Schedule plan = source.rows ? *source.rows : generated(source);
  if (source.flushes) plan = with_flushes(plan, sizes.steps);
  if (sizes.runtime_rule && source.rule_at_run_time) set_run_policy(source, plan);
  if (sizes.with_recompute) plan = with_recompute(plan);
  // The split comes last, because it depends on the predicted times of the complete rows.
  if (sizes.split_backward)
    plan = with_split_backward(plan, source.costs != nullptr ? *source.costs : Costs());
  return plan;
}

ProvedPlan proved_plan(const Schedule& compute, const Lowering& how, const VerifyOptions& limits) {
  ProvedPlan made;
  made.lowered = lower(compute, how);
  made.report = verify(made.lowered, limits);
  return made;
}

VerifyReport prove(const Schedule& as_given, const Schedule& lowered, const VerifyOptions& limits) {
  if (!is_lowered(as_given)) verify(as_given, {.memory_limit = limits.memory_limit});
  return verify(lowered, limits);
}

int send_slots_for(const Schedule& lowered, const std::vector<Costs>& costs) {
  int slots = least_send_slots(lowered);
  for (const Costs& each : costs) slots = std::max(slots, ample_send_slots(lowered, each));
  return slots + 1;
}

}  // namespace hetu
