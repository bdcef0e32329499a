// Chimera runs pipelines in both directions so that one fills the bubbles of the other. For D = 4
// stages and one pair, replica 0 (ids 0-3) goes down with micro-batches 0 and 1. Replica 1 (ids
// 4-7) goes up with micro-batches 2 and 3. In slots of F = B:
//
//   worker 0   0F0  .  0F1 7F2 7B2 7F3 7B3 0B0  .  0B1
//   worker 1    .  1F0 6F2 1F1 6F3 6B2 1B0 6B3 1B1  .
//   worker 2    .  5F2 2F0 5F3 2F1 2B0 5B2 2B1 5B3  .
//   worker 3   4F2  .  4F3 3F0 3B0 3F1 3B1 4B2  .  4B3
//
// Source: Li and Hoefler 2021, section 3.1; the concatenation of units is section 3.5.
#include <algorithm>

#include "base/error.h"
#include "pipeline/generate/choose.h"
#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

struct Item {
  int slot;
  Instr instr;
};

// Lays units of base size one after the other, each as soon as the slots of the previous unit allow
// it. All items take one slot. In a unit, a forward item is `group` micro-batches of one pipeline
// and a backward item is 1/halves of a micro-batch. On stage s, the k-th forward item of a pipeline
// is in slot s + 2k. Its k-th backward item is in slot 2D - 1 - s + 2k. These slots never collide
// on a worker. Micro-batches that don't fill a unit of groups follow in units of group 1, of which
// the last has gaps.
Schedule in_units(const Sizes& sizes, int group, int halves) {
  Schedule s = bidirectional("chimera", sizes);
  s.half_micros = halves == 2;
  const int depth = sizes.stages, pipelines = 2 * sizes.pairs;
  std::vector<std::vector<Item>> rows(depth);
  for (int done = 0, slot = 0; done < sizes.micro_batches;) {
    const int left = sizes.micro_batches - done;
    const int fits = left >= group * depth ? group : 1;
    const int unit = std::min(left, fits * depth);
    for (int r = 0; r < pipelines; ++r) {
      const int count = unit / pipelines + (r < unit % pipelines ? 1 : 0);
      for (int stage = 0; stage < depth; ++stage) {
        const int id = r * depth + stage;
        std::vector<Item>& row = rows[s.placements[id].workers[0]];
        for (int k = 0; k < count; ++k)
          row.push_back({slot + stage + 2 * (k / fits), forward_of(id, done + k)});
        for (int k = 0; k < count * halves; ++k)
          row.push_back({slot + 2 * depth - 1 - stage + 2 * k, backward_of(id, done * halves + k)});
      }
      done += count;
    }
    slot += depth * (1 + fits * halves);
  }
  for (int w = 0; w < depth; ++w) {
    std::stable_sort(rows[w].begin(), rows[w].end(),
                     [](const Item& a, const Item& b) { return a.slot < b.slot; });
    std::vector<Instr> row;
    for (const Item& item : rows[w]) row.push_back(item.instr);
    s.workers[w] = folded(row, 2 * group * depth, group * depth);
  }
  return s;
}

// Returns the shortest concatenation that fits memory under the costs, or the first of equally
// short ones.
Schedule shortest(const Sizes& sizes) {
  std::optional<Candidate> best;
  for (const char* concat : {"direct", "doubling", "halving"}) {
    if (sizes.pairs > 1 && concat != std::string_view("direct")) continue;
    Sizes one = sizes;
    one.concat = concat;
    std::optional<Candidate> found = candidate(chimera(one), sizes, kNoLimit);
    if (found && (!best || found->makespan < best->makespan)) best = std::move(found);
  }
  if (best) return std::move(best->plan);
  Sizes least = sizes;
  least.concat = "direct";
  const std::vector<double> peaks = verify(chimera(least)).peak_activations;
  fail(Code::InvalidArgument,
       "no concatenation of chimera fits the memory limit; direct needs the least memory, {} "
       "micro-batches per worker",
       *std::max_element(peaks.begin(), peaks.end()));
}

}  // namespace

Schedule chimera(const Sizes& sizes) {
  if (sizes.concat == "best") return shortest(sizes);
  require(sizes.pairs == 1 || sizes.concat == "direct",
          "chimera takes one pair of pipelines with --concat {}, got --pairs {}", sizes.concat,
          sizes.pairs);
  if (sizes.concat == "doubling") return in_units(sizes, 2, 1);
  if (sizes.concat == "halving") return in_units(sizes, 1, 2);
  return in_units(sizes, 1, 1);
}

}  // namespace hetu
