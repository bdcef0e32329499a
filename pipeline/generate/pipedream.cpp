#include <algorithm>
#include <vector>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// Sizes of a plan without a flush: the micro-batches in progress, those that an update applies, and
// those of a body. The body begins after the forward of micro-batch `behind`.
struct Rhythm {
  int in_flight = 1;
  int per_update = 1;
  int per_body = 1;
  int behind = -1;
};

// Returns the index after the forward of a micro-batch, or 0 for -1.
int behind_forward(const std::vector<Instr>& row, int micro) {
  if (micro < 0) return 0;
  const auto at = std::find_if(row.begin(), row.end(), [&](const Instr& i) {
    return i.kind == Kind::Forward && i.micro == micro;
  });
  return static_cast<int>(at - row.begin()) + 1;
}

// Returns 1F1B over all steps without a flush. Time is counted in slots of F = B. With P
// micro-batches in progress, micro-batch n enters in slot 2n. With fewer, each group of `in_flight`
// micro-batches enters one round trip of 2P slots after the previous group. Worker w runs the
// forward w slots after the entry and the backward 2P - 1 - w slots after it. The two never
// collide: one falls on slots with the parity of w, the other on slots of the opposite parity.
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
  // A body is a whole wave, so that it can contain the wave's push and pull. The first pull comes
  // before the last forward of the second wave. The body begins after the last forward of the first
  // wave, so that this point recurs in every repetition.
  const int wave = sizes.micro_batches;
  Schedule s =
      without_flush("hetpipe", sizes, {.in_flight = wave, .per_body = wave, .behind = wave - 1});
  s.version_rule = VersionRule::Wave;
  s.most_versions = std::max(2, sizes.micro_batches);
  return s;
}

}  // namespace hetu
