#include "pipeline/cost/drift.h"

#include <cmath>
#include <map>
#include <utility>

namespace hetu {
namespace {

// Time by kind and model stage.
using Busy = std::map<std::pair<Kind, int>, double>;

Busy busy_times(const Schedule& plan, const Costs& costs) {
  check_costs(costs, plan, plan.lowering.pipelines);
  Busy busy;
  for (const Program& program : plan.workers) {
    for (const Instr& i : unroll(program)) {
      if (!is_work(i.kind)) continue;
      busy[{i.kind, plan.placements[i.stage].model_stage}] += instr_time(costs, plan, i);
    }
  }
  return busy;
}

double sum_of(const Busy& busy) {
  double sum = 0;
  for (const auto& [what, time] : busy) sum += time;
  return sum;
}

}  // namespace

double drift(const Schedule& plan, const Costs& planned, const Costs& measured) {
  const Busy before = busy_times(plan, planned), now = busy_times(plan, measured);
  const double all_before = sum_of(before), all_now = sum_of(now);
  if (all_before <= 0 || all_now <= 0) return all_before == all_now ? 0 : 2;
  double apart = 0;
  for (const auto& [what, time] : now)
    apart += std::abs(time / all_now - before.at(what) / all_before);
  return apart;
}

}  // namespace hetu
