// Binds instructions to global workers, tags and groups. Tags must be equal at both ends: a message
// uses the sender's placement, a sum the model stage, and a tied sum kTiedStage with the number of
// its pair.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "executor/compile/row.h"
#include "pipeline/ir/producers.h"
#include "pipeline/ir/reduction.h"

namespace hetu {
namespace {

constexpr int kTiedStage = 0x3fff;  // larger than any model stage that fits a tag

class Binder {
 public:
  Binder(const Schedule& lowered, int first_worker, int pipelines)
      : lowered_(lowered),
        first_(first_worker),
        pipelines_(pipelines),
        graph_(lowered, /*lowered=*/true),
        reductions_(lowered) {}

  std::vector<Action> bind(const std::vector<Instr>& instrs) const {
    std::vector<Action> row;
    for (const Instr& instr : instrs) row.push_back(bind(instr));
    return row;
  }

 private:
  Action bind(const Instr& instr) const {
    Action action;
    action.instr = instr;
    if (is_send(instr.kind) || is_recv(instr.kind)) {
      const int far = graph_.peer(instr);
      if (far < 0)
        fail(Code::Plan, "{}: the plan has no edge for this part of a message", to_string(instr));
      action.peer = first_ + graph_.worker(far);
      action.tag_stage = is_send(instr.kind) ? instr.stage : far;
      action.tag_part = instr.part;
    } else if (is_factor_exchange(instr.kind)) {
      action.tag_stage = lowered_.placements[instr.stage].model_stage;
      action.tag_part = instr.part;
      action.group = group(instr);
    } else if (instr.kind == Kind::ReduceGrad) {
      const std::int64_t number = reductions_.group(instr.stage, instr.part);
      const bool tied = number < 0;
      action.tag_stage = tied ? kTiedStage : lowered_.placements[instr.stage].model_stage;
      action.tag_part = tied ? static_cast<int>(-1 - number) : instr.part;
      action.group = group(instr);
    }
    return action;
  }

  std::vector<int> group(const Instr& reduce) const {
    const int width = static_cast<int>(lowered_.workers.size());
    const bool alone = lowered_.lowering.averages();  // this pipeline shares no gradient
    // Adds in the order of pipelines, and of replicas within a pipeline, which is the order of
    // their micro-batches.
    std::vector<int> members = reductions_.members(reduce);
    std::sort(members.begin(), members.end());
    std::vector<int> group;
    for (int d = 0; d < pipelines_; ++d) {
      const int first = alone ? first_ : d * width;
      for (const int stage : members) group.push_back(first + graph_.worker(stage));
      if (alone) break;
    }
    return group;
  }

  const Schedule& lowered_;
  int first_;
  int pipelines_;
  StageGraph graph_;
  Reductions reductions_;
};

// Drops all but the last sum where two copies of a stage are on one worker. They are summed with
// others once, when both gradients are complete.
void drop_early_sums(std::vector<Action>& actions) {
  const auto doubled = [&](const Action& early) {
    const auto* const end = actions.data() + actions.size();
    return early.instr.kind == Kind::ReduceGrad &&
           std::any_of(&early + 1, end, [&](const Action& later) {
             return later.instr.kind == Kind::ReduceGrad &&
                    later.instr.stage != early.instr.stage && later.tag_stage == early.tag_stage &&
                    later.tag_part == early.tag_part;
           });
  };
  std::vector<Action> kept;
  for (const Action& a : actions)
    if (!doubled(a)) kept.push_back(a);
  actions = std::move(kept);
}

// Marks the instructions that their stage's sums follow directly. A repeated body is followed by
// itself.
void mark_last_gradients(std::vector<Action>& actions, bool repeats) {
  const std::size_t n = actions.size();
  for (std::size_t i = 0; i < n; ++i) {
    if (!is_compute(actions[i].instr.kind)) continue;
    std::size_t k = i + 1;
    while (k < (repeats ? i + n : n) && is_send(actions[k % n].instr.kind)) ++k;
    for (; k < (repeats ? i + n : n) && actions[k % n].instr.kind == Kind::ReduceGrad; ++k)
      actions[i].sums_follow |= actions[k % n].instr.stage == actions[i].instr.stage;
  }
}

}  // namespace

std::string describe(const Instr& instr, int step) {
  std::string place;
  if (instr.stage >= 0) place = fmt::format("stage {}, ", instr.stage);
  if (instr.micro >= 0) place += fmt::format("micro-batch {}, ", instr.micro);
  return fmt::format("{} ({}step {})", to_string(instr), place, step);
}

Row bind_row(const Schedule& lowered, int global_worker, int pipelines) {
  const int width = static_cast<int>(lowered.workers.size());
  require(pipelines >= 1 && global_worker >= 0 && global_worker < width * pipelines,
          "worker {} does not exist in a plan of {} workers x {} pipelines", global_worker, width,
          pipelines);
  const int first = global_worker / width * width;  // first worker of the pipeline
  const Binder binder(lowered, first, pipelines);
  const Program& program = lowered.workers[global_worker - first];
  Row row;
  row.forwards_first = lowered.run_policy == RunPolicy::ForwardBeforeLateGradient;
  if (row.forwards_first) {
    row.drain = binder.bind(unroll(program));
  } else {
    row.prologue = binder.bind(program.prologue);
    row.body = binder.bind(program.body);
    row.drain = binder.bind(program.drain);
    row.repeat = program.repeat;
    row.shift = program.shift;
  }
  if (lowered.steps == 1) drop_early_sums(row.drain);
  if (lowered.lowering.sync != SyncPlace::End) {
    mark_last_gradients(row.prologue, false);
    mark_last_gradients(row.body, true);
    mark_last_gradients(row.drain, false);
  }
  const int cycle = StageGraph(lowered, /*lowered=*/true).cycle();
  if (row.repeat > 0 && row.shift % cycle != 0)
    fail(Code::Plan,
         "worker {}: a repetition of the body advances micro-batches by {}, which is not a "
         "multiple of {}, the cycle of its peers",
         global_worker - first, row.shift, cycle);
  // Half micro-batches have their own ids; a synchronous plan has a single step in any case.
  row.micros_per_step = lowered.steps > 1 ? lowered.micro_batches : 0;
  row.updates_per_step = lowered.micro_batches / micros_per_update(lowered);
  return row;
}

}  // namespace hetu
