#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {

Schedule gems(const Sizes& sizes) {
  Schedule s = bidirectional("gems", sizes);
  const int half = sizes.micro_batches / 2;
  for (int w = 0; w < sizes.stages; ++w) {
    const int down = w, up = 2 * sizes.stages - 1 - w;
    s.workers[w].body = {forward_of(down, 0), backward_of(down, 0), forward_of(up, half),
                         backward_of(up, half)};
    s.workers[w].repeat = half;
    s.workers[w].shift = 1;
  }
  return s;
}

}  // namespace hetu
