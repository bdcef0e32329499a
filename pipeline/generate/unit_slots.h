// Orders that result from running a plan in which every instruction takes one slot. In each slot, a
// rule chooses the next instruction of each worker from the work done so far. For methods that are
// published as a rule or a repeating block, not as an order.
#pragma once
#include <optional>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Micro-batches that each stage of one replica has finished, by kind. Each kind runs in ascending
/// order.
struct Done {
  int micros = 0;
  std::vector<int> forwards, backwards, weights;

  /// Returns true if the input of the stage's next forward exists; backward_ready() and
  /// weight_ready() are the same for their kinds.
  bool forward_ready(int stage) const {
    return forwards[stage] < (stage == 0 ? micros : forwards[stage - 1]);
  }
  bool backward_ready(int stage) const {
    const bool last = stage + 1 == static_cast<int>(forwards.size());
    return backwards[stage] < (last ? forwards[stage] : backwards[stage + 1]);
  }
  bool weight_ready(int stage) const { return weights[stage] < backwards[stage]; }
};

/// Fills the rows, as prologue, until no worker has anything to do. `pick(done, worker)` returns
/// the kind and stage of the worker's instruction in the next slot, without its micro-batch, or
/// nullopt. `done` is the state before the slot for all workers.
template <class Pick>
void fill_in_unit_slots(Schedule& s, Pick&& pick) {
  const std::size_t stages = s.placements.size();
  const std::vector<int> none(stages, 0);
  Done done{s.micro_batches, none, none, none};
  for (bool moved = true; moved;) {
    moved = false;
    const Done before = done;
    for (std::size_t w = 0; w < s.workers.size(); ++w) {
      std::optional<Instr> next = pick(before, static_cast<int>(w));
      if (!next) continue;
      std::vector<int>& count = next->kind == Kind::Forward      ? done.forwards
                                : next->kind == Kind::WeightGrad ? done.weights
                                                                 : done.backwards;
      next->micro = count[next->stage]++;
      s.workers[w].prologue.push_back(*next);
      moved = true;
    }
  }
}

}  // namespace hetu
