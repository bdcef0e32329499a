#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/rounds.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// Fills the rows of ZB-H1 (hops = 1) and ZB-H2 (hops = 2). Each worker runs F's alone (warm-up),
// then F I, then F I W, then I W, then W. Worker w has `hops` more warm-up forwards for each worker
// after it. Its W's follow their I's later by `hops` rounds for each worker before it. The W's of a
// worker therefore don't delay the I's that earlier workers wait for.
//
// Example: ZB-H1 for P = 2, M = 3 (F0 I0 … are of the worker's own stage).
//   worker 0   F0 F1 I0 W0 F2 I1 W1 I2 W2
//   worker 1   F0 I0 F1 I1 W0 F2 I2 W1 W2
void fill(Schedule& s, const Sizes& sizes, int hops) {
  const Rounds rounds(sizes);
  const int stages = sizes.stages, all = sizes.micro_batches * sizes.chunks;
  for (int w = 0; w < stages; ++w) {
    const int warmup = std::min(all, (sizes.chunks - 1) * rounds.micros + hops * (stages - 1 - w));
    const int delay = hops * w;
    const auto stage = [&](int chunk) { return chunk * stages + w; };
    std::vector<Instr> row;
    for (int n = 0; n < all + warmup + delay; ++n) {
      const int in = n - warmup, weight = in - delay;
      if (n < all) row.push_back(forward_of(stage(rounds.forward_chunk(n)), rounds.micro(n)));
      if (in >= 0 && in < all)
        row.push_back(input_grad_of(stage(rounds.backward_chunk(in)), rounds.micro(in)));
      if (weight >= 0)
        row.push_back(weight_grad_of(stage(rounds.backward_chunk(weight)), rounds.micro(weight)));
    }
    s.workers[w] = folded(row, 3 * rounds.size(), rounds.micros);
  }
}

}  // namespace

Schedule zb_h1(const Sizes& sizes) {
  Schedule s = looped("zb-h1", sizes);
  fill(s, sizes, 1);
  return s;
}

Schedule zb_h2(const Sizes& sizes) {
  Schedule s = looped("zb-h2", sizes);
  fill(s, sizes, 2);
  return s;
}

Schedule interleaved_zb(const Sizes& sizes) {
  Schedule s = looped("interleaved-zb", sizes);
  fill(s, sizes, 1);
  return s;
}

}  // namespace hetu
