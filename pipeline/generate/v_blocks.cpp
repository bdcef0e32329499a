// V-Half and V-Min repeat one block of six instructions every six slots. On a V placement, worker i
// has stage i of the downward path and stage 2P - 1 - i of the upward path. The block of a
// micro-batch has an F and an I for each of the two stages in fixed slots. A stage holds a
// micro-batch from its F to its W, so shorter distances between F and I need less memory. The two
// W's of a micro-batch fill the slots that are left.
//
// Example: V-Half for P = 3, slots of micro-batch 0 (micro-batch m comes 6m slots later).
//              F down  F up  I up  I down    modulo 6
//   worker 0      0      7     8     16      0 1 2 4
//   worker 1      2      6    10     15      2 0 4 3
//   worker 2      4      5    12     14      4 5 0 2
// No two slots of a worker are equal modulo 6, so the blocks of all micro-batches interleave.
//
// Source: Qi et al. 2024 (Pipeline Parallelism with Controllable Memory), section 3.
#include <algorithm>
#include <array>
#include <queue>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/generate/unit_slots.h"

namespace hetu {
namespace {

// Slots of micro-batch 0 on one worker: F of its stage down, F of its stage up, I up, I down. The
// slots of micro-batch m are 6m later.
using Block = std::array<int, 4>;
constexpr int kPeriod = 6;

// A worker of a V placement while its row grows. Memory is counted in half chunks: an F takes two,
// and an I and a W return one each.
struct BlockWorker {
  Block block;
  std::array<int, 4> stage;      // stage of each line of the block
  int free;                      // free half chunks
  std::array<int, 4> next = {};  // next micro-batch of each line
  std::queue<int> late = {};     // stages of pending W's, in order

  static bool is_forward(int line) { return line < 2; }

  // Returns the line with the next instruction in the order of the blocks, or -1 if all lines have
  // ended.
  int first_line(const std::array<int, 4>& at, int micros) const {
    int first = -1;
    for (int line = 0; line < 4; ++line) {
      if (at[line] == micros) continue;
      const auto slot = [&](int l) { return block[l] + kPeriod * at[l]; };
      if (first < 0 || slot(line) < slot(first)) first = line;
    }
    return first;
  }

  // Returns the line that may run next: the first line in the order of the blocks if it is ready
  // and, for an F, fits memory. With `early` it may be a later line that is ready, if memory
  // remains for the instructions that it overtakes. Returns -1 if no line may run.
  int choose(const Done& done, bool early) const {
    std::array<int, 4> at = next;
    // free half chunks once all pending W's are done
    int room = free + static_cast<int>(late.size()), least = room;
    int unseen = 4;
    for (int line; unseen > 0 && (line = first_line(at, done.micros)) >= 0;) {
      if (at[line] == next[line]) {
        --unseen;
        const bool ready =
            is_forward(line) ? done.forward_ready(stage[line]) : done.backward_ready(stage[line]);
        if (ready && (!is_forward(line) || (free >= 2 && least >= 2))) return line;
        if (!early) return -1;
      }
      room += is_forward(line) ? -2 : 2;
      least = std::min(least, room);
      ++at[line];
    }
    return -1;
  }

  std::optional<Instr> pick(const Done& done, bool early) {
    const int line = choose(done, early);
    if (line >= 0) {
      ++next[line];
      free += is_forward(line) ? -2 : 1;
      if (is_forward(line)) return forward_of(stage[line], 0);
      late.push(stage[line]);
      return input_grad_of(stage[line], 0);
    }
    if (late.empty()) return std::nullopt;
    const int weight = late.front();
    late.pop();
    ++free;
    return weight_grad_of(weight, 0);
  }
};

// Fills the rows from one block per worker, with `limit` micro-batches of memory each. W's take the
// slots that are left.
template <class BlockOf>
void fill_blocks(Schedule& s, int limit, bool early, BlockOf&& block_of) {
  std::vector<BlockWorker> workers;
  for (int w = 0; w < s.stages; ++w) {
    const int up = 2 * s.stages - 1 - w;
    workers.push_back({block_of(w), {w, up, up, w}, 4 * limit});
  }
  fill_in_unit_slots(s, [&](const Done& done, int w) { return workers[w].pick(done, early); });
  for (Program& p : s.workers) p = folded(p.prologue, kPeriod, 1);
}

}  // namespace

// If P is even (V-Half) or a multiple of 3 (V-Min), two instructions of a block would have the same
// slot modulo 6. Later I's avoid the collision, and running instructions early regains the time.
Schedule v_half(const Sizes& sizes) {
  Schedule s = waves("v-half", sizes);
  const int p = sizes.stages, late = p % 2 == 0 ? 3 : 0;
  fill_blocks(s, (p + 2) / 2, late > 0, [&](int i) {
    return Block{2 * i, 3 * p - 2 - i, 3 * p - 1 + 2 * i, 6 * p - 2 - i + late};
  });
  return s;
}

Schedule v_min(const Sizes& sizes) {
  Schedule s = waves("v-min", sizes);
  const int p = sizes.stages, late = p % 3 == 0 ? 2 : 0;
  fill_blocks(s, (p + 4) / 3, late > 0, [&](int i) {
    return Block{i, 2 * p - 1 - i, 2 * p + late + i, 4 * p + 2 * late - 1 - i};
  });
  return s;
}

}  // namespace hetu
