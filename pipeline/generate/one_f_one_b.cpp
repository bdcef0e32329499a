#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"

namespace hetu {

Schedule one_f_one_b(const Sizes& sizes) {
  if (!sizes.replicas.empty()) return one_f_one_b_replicated(sizes);
  Schedule s = one_stage_per_worker("1f1b", sizes);
  const int micros = sizes.micro_batches;
  for (int w = 0; w < sizes.stages; ++w) {
    const int warmup = std::min(micros, sizes.stages - 1 - w);
    Program& out = s.workers[w];
    for (int m = 0; m < warmup; ++m) out.prologue.push_back({.stage = w, .micro = m});
    out.repeat = micros - warmup;
    if (out.repeat > 0)
      out.body = {{.stage = w, .micro = warmup}, {.kind = Kind::Backward, .stage = w, .micro = 0}};
    out.shift = 1;
    for (int m = micros - warmup; m < micros; ++m)
      out.drain.push_back({.kind = Kind::Backward, .stage = w, .micro = m});
  }
  return s;
}

}  // namespace hetu
