#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"

namespace hetu {

Schedule gpipe(const Sizes& sizes) {
  if (!sizes.replicas.empty()) return gpipe_replicated(sizes);
  Schedule s = one_stage_per_worker("gpipe", sizes);
  for (int w = 0; w < sizes.stages; ++w) {
    Program& out = s.workers[w];
    for (int m = 0; m < sizes.micro_batches; ++m) out.prologue.push_back({.stage = w, .micro = m});
    for (int m = 0; m < sizes.micro_batches; ++m)
      out.drain.push_back({.kind = Kind::Backward, .stage = w, .micro = m});
  }
  return s;
}

}  // namespace hetu
