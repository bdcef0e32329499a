#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/generate/unit_slots.h"

namespace hetu {

Schedule hanayo(const Sizes& sizes) {
  Schedule s = waves("hanayo", sizes);
  std::vector<std::vector<int>> deepest_first(sizes.stages);
  for (int i = static_cast<int>(s.placements.size()) - 1; i >= 0; --i)
    deepest_first[s.placements[i].workers[0]].push_back(i);
  fill_in_unit_slots(s, [&](const Done& done, int worker) -> std::optional<Instr> {
    for (const int stage : deepest_first[worker])
      if (done.backward_ready(stage)) return backward_of(stage, 0);
    const bool may_enter = done.forwards[0] - done.backwards[0] < sizes.stages;
    for (const int stage : deepest_first[worker])
      if (done.forward_ready(stage) && (stage > 0 || may_enter)) return forward_of(stage, 0);
    return std::nullopt;
  });
  // In the steady state, the same instructions recur with the next P micro-batches.
  const int period = 2 * sizes.chunks * sizes.stages;
  for (Program& p : s.workers) p = folded(p.prologue, period, sizes.stages);
  return s;
}

}  // namespace hetu
