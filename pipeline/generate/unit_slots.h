// Orders that come from running a plan with every instruction one slot long: what a worker does
// next is chosen slot by slot from what is done. For methods whose publication gives a rule or a
// repeating block, not an order.
#pragma once
#include <optional>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// How many micro-batches each stage of one replica has behind it; each kind runs in ascending
/// order.
struct Done {
  int micros = 0;
  std::vector<int> forwards, backwards, weights;

  bool forward_ready(int stage) const {
    return forwards[stage] < (stage == 0 ? micros : forwards[stage - 1]);
  }
  bool backward_ready(int stage) const {
    const bool last = stage + 1 == static_cast<int>(forwards.size());
    return backwards[stage] < (last ? forwards[stage] : backwards[stage + 1]);
  }
  bool weight_ready(int stage) const { return weights[stage] < backwards[stage]; }
};

/// Fills the rows, as prologue, until no worker has anything to do. `pick(done, worker)` gives the
/// kind and stage of what the worker does in the next slot (an instruction without its micro-batch)
/// or nothing; `done` is as before the slot, for all workers alike.
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
