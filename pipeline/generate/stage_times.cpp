#include "pipeline/generate/stage_times.h"

#include "pipeline/cost/timing.h"
#include "pipeline/generate/choose.h"
#include "pipeline/generate/row.h"

namespace hetu {

StageTimes stage_times(const Schedule& placed, const Sizes& sizes) {
  const Costs& costs = costs_to_choose_by(sizes);
  check_costs(costs, placed, placed.lowering.pipelines);
  const Stragglers calm;
  const Timing timing(placed, costs, calm);
  const int stages = static_cast<int>(placed.placements.size());
  const auto worker = [&](int stage) { return placed.placements[stage].workers[0]; };
  const auto time = [&](const Instr& i) { return timing.compute(i, worker(i.stage), 0, 0); };
  const auto hop = [&](const Instr& made, int user) {
    const int from = worker(made.stage), to = worker(user);
    return from == to ? 0 : timing.message(made, user, from, to);
  };
  StageTimes t;
  for (int s = 0; s < stages; ++s) {
    const bool recomputed = sizes.with_recompute && s + 1 < stages;
    const Instr recompute{.kind = Kind::Recompute, .stage = s, .micro = 0};
    t.forward.push_back(time(forward_of(s, 0)));
    t.input_grad.push_back(time(input_grad_of(s, 0)) + (recomputed ? time(recompute) : 0));
    t.weight_grad.push_back(time(weight_grad_of(s, 0)));
    t.forward_hop.push_back(s > 0 ? hop(forward_of(s - 1, 0), s) : 0);
    t.backward_hop.push_back(s + 1 < stages ? hop(input_grad_of(s + 1, 0), s) : 0);
  }
  return t;
}

}  // namespace hetu
