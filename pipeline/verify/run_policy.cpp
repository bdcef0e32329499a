#include "pipeline/verify/run_policy.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {

std::vector<Instr> fullest_row(const Schedule& plan, int worker) {
  std::vector<Instr> row = unroll(plan.workers[worker]);
  if (plan.run_policy == RunPolicy::AsPlanned) return row;
  const auto first = std::find_if(row.begin(), row.end(),
                                  [](const Instr& i) { return i.kind == Kind::Recompute; });
  std::stable_partition(first, row.end(), [](const Instr& i) { return i.kind == Kind::Forward; });
  return row;
}

void check_run_policy(const Schedule& plan) {
  if (plan.run_policy == RunPolicy::AsPlanned) return;
  if (plan.most_versions != 1)
    fail(Code::Plan, "a run policy is for plans with one weight version, not {}",
         plan.most_versions);
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    Instr recompute{.stage = -1};
    for (const Instr& i : unroll(plan.workers[w])) {
      if (!is_compute(i.kind)) continue;
      const bool follows = i.stage == recompute.stage && i.micro == recompute.micro &&
                           (i.kind == Kind::Backward || i.kind == Kind::InputGrad);
      if (i.with_next || (recompute.stage >= 0 && !follows))
        fail(Code::Plan,
             "a run policy is for plans with each R directly before its B or I:\n  worker {}: {}",
             w, to_string(i));
      recompute.stage = -1;
      if (i.kind == Kind::Recompute) recompute = i;
    }
  }
}

}  // namespace hetu
