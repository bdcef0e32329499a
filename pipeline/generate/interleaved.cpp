#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/rounds.h"
#include "pipeline/generate/row.h"

namespace hetu {

Schedule interleaved_1f1b(const Sizes& sizes) {
  Schedule s = looped("interleaved-1f1b", sizes);
  const Rounds rounds(sizes);
  const int stages = sizes.stages, all = sizes.micro_batches * sizes.chunks;
  for (int w = 0; w < stages; ++w) {
    const int warmup = std::min(all, (sizes.chunks - 1) * rounds.micros + 2 * (stages - 1 - w));
    const auto stage = [&](int chunk) { return chunk * stages + w; };
    std::vector<Instr> row;
    for (int n = 0; n < all + warmup; ++n) {
      const int back = n - warmup;
      if (n < all) row.push_back(forward_of(stage(rounds.forward_chunk(n)), rounds.micro(n)));
      if (back >= 0)
        row.push_back(backward_of(stage(rounds.backward_chunk(back)), rounds.micro(back)));
    }
    s.workers[w] = folded(row, 2 * rounds.size(), rounds.micros);
  }
  return s;
}

Schedule looped_bfs(const Sizes& sizes) {
  Schedule s = looped("looped-bfs", sizes);
  for (int w = 0; w < sizes.stages; ++w) {
    Program& out = s.workers[w];
    for (int j = 0; j < sizes.chunks; ++j)
      for (int m = 0; m < sizes.micro_batches; ++m)
        out.prologue.push_back(forward_of(j * sizes.stages + w, m));
    for (int j = sizes.chunks - 1; j >= 0; --j)
      for (int m = sizes.micro_batches - 1; m >= 0; --m)
        out.drain.push_back(backward_of(j * sizes.stages + w, m));
  }
  return s;
}

}  // namespace hetu
