#include <algorithm>
#include <vector>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// How many micro-batches are underway, and how many an update applies and a body holds; the body
// begins behind the forward of micro-batch `behind`.
struct Rhythm {
  int in_flight = 1;
  int per_update = 1;
  int per_body = 1;
  int behind = -1;
};

// Index in a row of what follows the forward of a micro-batch; 0 for -1.
int behind_forward(const std::vector<Instr>& row, int micro) {
  if (micro < 0) return 0;
  const auto at = std::find_if(row.begin(), row.end(), [&](const Instr& i) {
    return i.kind == Kind::Forward && i.micro == micro;
  });
  return static_cast<int>(at - row.begin()) + 1;
}

// 1F1B over all steps without a flush. In slots of F = B micro-batch n enters at slot 2n,
// later by a round trip where that many are underway; it is forward on worker w w slots later and
// backward 2P - 1 - w slots later, which collides with nothing.
Schedule without_flush(const char* method, const Sizes& sizes, const Rhythm& rhythm) {
  Schedule s = one_stage_per_worker(method, sizes);
  s.steps = sizes.steps;
  const int all = sizes.micro_batches * sizes.steps, trip = 2 * sizes.stages;
  const int batch = std::min(rhythm.in_flight, sizes.stages);
  const auto enters = [&](int n) { return 2 * (n % batch) + n / batch * trip; };
  for (int w = 0; w < sizes.stages; ++w) {
    std::vector<Instr> row;
    for (int forward = 0, backward = 0; backward < all;) {
      if (forward < all && enters(forward) + w < enters(backward) + trip - 1 - w) {
        row.push_back(forward_of(w, forward++));
        continue;
      }
      row.push_back(backward_of(w, backward++));
      if (backward % rhythm.per_update == 0) row.push_back({.kind = Kind::Update, .stage = w});
    }
    const int period = 2 * rhythm.per_body + rhythm.per_body / rhythm.per_update;
    s.workers[w] = folded(row, period, rhythm.per_body, behind_forward(row, rhythm.behind));
  }
  return s;
}

}  // namespace

Schedule pipedream(const Sizes& sizes) {
  if (!sizes.replicas.empty()) return pipedream_replicated(sizes);
  Schedule s = without_flush("pipedream", sizes, {.in_flight = sizes.stages});
  s.most_versions = std::max(2, sizes.stages);
  return s;
}

Schedule pipedream_2bw(const Sizes& sizes) {
  const int step = sizes.micro_batches;
  Schedule s = without_flush("pipedream-2bw", sizes,
                             {.in_flight = sizes.stages, .per_update = step, .per_body = step});
  s.version_rule = VersionRule::Lag1;
  s.most_versions = 2;
  return s;
}

Schedule hetpipe(const Sizes& sizes) {
  // A body is a wave, so that its push and its pull can stand in it. The forward that waits for the
  // first pull is the last one of the second wave: that of the first wave stands before all bodies.
  const int wave = sizes.micro_batches;
  Schedule s =
      without_flush("hetpipe", sizes, {.in_flight = wave, .per_body = wave, .behind = wave - 1});
  s.version_rule = VersionRule::Wave;
  s.most_versions = std::max(2, sizes.micro_batches);
  return s;
}

}  // namespace hetu
