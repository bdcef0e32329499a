#include <algorithm>
#include <array>
#include <queue>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"
#include "pipeline/generate/unit_slots.h"

namespace hetu {
namespace {

// The slots of micro-batch 0 on one worker: F of its stage down, F of its stage up, I up, I down.
// Micro-batch m comes 6m slots later.
using Block = std::array<int, 4>;
constexpr int kPeriod = 6;

// One worker of a V placement while its row grows. Memory counts in half chunks: an F takes two, an
// I and a W give one back each.
struct BlockWorker {
  Block block;
  std::array<int, 4> stage;      // per line of the block
  int free;                      // half chunks below the limit
  std::array<int, 4> next = {};  // micro-batch that each line comes to
  std::queue<int> late = {};     // stages whose W is to come, in order

  static bool is_forward(int line) { return line < 2; }

  // The line whose next instruction comes first in the blocks; -1 at the end of all lines.
  int first_line(const std::array<int, 4>& at, int micros) const {
    int first = -1;
    for (int line = 0; line < 4; ++line) {
      if (at[line] == micros) continue;
      const auto slot = [&](int l) { return block[l] + kPeriod * at[l]; };
      if (first < 0 || slot(line) < slot(first)) first = line;
    }
    return first;
  }

  // The line that may go on: the first one; with `early` also a later one that is ready, as long as
  // memory is left for what it overtakes.
  int choose(const Done& done, bool early) const {
    std::array<int, 4> at = next;
    int room = free + static_cast<int>(late.size()), least = room;  // once all W's are done
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

// Rows from one block per worker, `limit` micro-batches of memory each; W's fill what is left.
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

// Where P is even here, and a multiple of 3 in v_min, two instructions of a block would share a
// slot modulo 6. Later I's make room; running early takes the time back.
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
