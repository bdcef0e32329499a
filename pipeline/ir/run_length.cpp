#include "pipeline/ir/run_length.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"

namespace hetu {

bool is_asynchronous(const Schedule& plan) {
  return !plan.lowering.flush && holds(plan, Kind::Update);
}

// The first step is the prologue and the body begins with the second step. Instructions that pull
// weights, or that free what the previous step kept, then stand at the same place in every
// repetition.
Schedule with_flushes(const Schedule& synchronous, int steps) {
  const char* found = is_lowered(synchronous) ? "is lowered already"
                      : synchronous.version_rule == VersionRule::Wave
                          ? "pushes waves of updates to servers by itself; remove --sync-method ps"
                      : holds(synchronous, Kind::Update)
                          ? "updates after its backwards, without a flush"
                      : synchronous.half_micros ? "splits backwards into half micro-batches"
                      : synchronous.placements.size() != synchronous.workers.size()
                          ? "has several stages on a worker"
                          : nullptr;
  require(found == nullptr,
          "--sync-method ps needs a method with a flush after each step, one stage per worker and "
          "whole micro-batches (dp, gpipe, 1f1b, zb-h1); '{}' {}",
          synchronous.method, found);
  Schedule s = synchronous;
  s.steps = steps;
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    std::vector<Instr> row = unroll(synchronous.workers[w]);
    for (std::size_t i = 0; i < s.placements.size(); ++i) {
      if (s.placements[i].workers[0] == static_cast<int>(w))
        row.push_back({.kind = Kind::Update, .stage = static_cast<int>(i)});
    }
    Program& p = s.workers[w];
    p = {row, std::move(row), steps - 1, s.micro_batches, {}};
    for (Instr& i : p.body)
      if (i.micro >= 0) i.micro += s.micro_batches;
    if (p.repeat == 0) p = {std::move(p.prologue), {}, 0, 0, {}};
  }
  return s;
}

int run_grain(const Schedule& plan) {
  int shift = plan.micro_batches;
  for (const Program& p : plan.workers) {
    if (p.repeat <= 0 || p.shift <= 0) return 0;
    shift = std::lcm(shift, p.shift);
  }
  return shift / plan.micro_batches;
}

// On P workers at most P steps are in progress. P steps fill the pipeline and P steps drain it. A
// body is what recurs in two steps between them.
int least_steps(const Schedule& plan) {
  constexpr int kToRecur = 2;
  return 2 * static_cast<int>(plan.workers.size()) + kToRecur;
}

// A row needs the most versions and copies while the pipeline is full. The least length consists of
// fill and drain with hardly any steps between. Twice that length has as many steps of the steady
// state.
int proving_steps(const Schedule& plan) { return 2 * least_steps(plan); }

// Two consecutive micro-batches that a worker keeps differ by the replicas of the stage, at most P.
// Results are read when their step of M micro-batches is done. The factor of 2 is for backwards in
// halves, which have two ids per micro-batch. The constant covers pipelines of one or two workers.
int micro_ids_in_work(const Schedule& plan, int live_copies) {
  constexpr int kHalves = 2, kShortPipeline = 16;
  return kHalves * plan.stages * (live_copies + plan.micro_batches) + kShortPipeline;
}

// Fewer than 2 P steps lie between the first forward of a step and its last update. Some steps are
// added for the message that announces the next extension when half of this one is left. The other
// workers then receive it before they come to the end of this extension.
int granted_at_once(const Schedule& plan) {
  constexpr int kForMessage = 4, kAnyLead = 64;
  const bool any = plan.lowering.staleness() == kAnyStaleness;
  const int under_way = 2 * plan.stages + (any ? kAnyLead : plan.lowering.staleness()),
            grain = std::max(1, run_grain(plan));
  const int wanted = 2 * (under_way + kForMessage);
  return (wanted + grain - 1) / grain * grain;
}

// The first stage has P micro-batches in progress when its update is reported. One more may begin
// while the answer travels. groups::Policy announces a stop this early.
int steps_before_answer(const Schedule& plan) { return plan.stages + 1; }

}  // namespace hetu
