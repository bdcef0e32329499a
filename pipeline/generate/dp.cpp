#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"

namespace hetu {

Schedule data_parallel(const Sizes& sizes) {
  Schedule s = one_stage_per_worker("dp", sizes);
  Program& out = s.workers[0];
  out.body = {{.stage = 0, .micro = 0}, {.kind = Kind::Backward, .stage = 0, .micro = 0}};
  out.repeat = sizes.micro_batches;
  out.shift = 1;
  return s;
}

}  // namespace hetu
