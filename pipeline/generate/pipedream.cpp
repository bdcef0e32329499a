#include <algorithm>

#include "pipeline/generate/families.h"
#include "pipeline/generate/placements.h"
#include "pipeline/generate/row.h"

namespace hetu {
namespace {

// 1F1B over all steps without a flush, with at most `in_flight` micro-batches in the pipeline and
// an update after every `period` backwards. In slots of F = B micro-batch n enters at slot 2n,
// later by a round trip where that many are underway; it is forward on worker w w slots later and
// backward 2P - 1 - w slots later, which collides with nothing.
Schedule without_flush(const char* method, const Sizes& sizes, int in_flight, int period) {
  Schedule s = one_stage_per_worker(method, sizes);
  s.steps = sizes.steps;
  const int all = sizes.micro_batches * sizes.steps, trip = 2 * sizes.stages;
  const int batch = std::min(in_flight, sizes.stages);
  const auto enters = [&](int n) { return 2 * (n % batch) + n / batch * trip; };
  for (int w = 0; w < sizes.stages; ++w) {
    std::vector<Instr> row;
    for (int forward = 0, backward = 0; backward < all;) {
      if (forward < all && enters(forward) + w < enters(backward) + trip - 1 - w) {
        row.push_back(forward_of(w, forward++));
        continue;
      }
      row.push_back(backward_of(w, backward++));
      if (backward % period == 0) row.push_back({.kind = Kind::Update, .stage = w});
    }
    s.workers[w] = folded(row, 2 * period + 1, period);
  }
  return s;
}

}  // namespace

Schedule pipedream(const Sizes& sizes) {
  if (!sizes.replicas.empty()) return pipedream_replicated(sizes);
  Schedule s = without_flush("pipedream", sizes, sizes.stages, 1);
  s.most_versions = std::max(2, sizes.stages);
  return s;
}

Schedule pipedream_2bw(const Sizes& sizes) {
  Schedule s = without_flush("pipedream-2bw", sizes, sizes.stages, sizes.micro_batches);
  s.version_rule = VersionRule::Lag1;
  s.most_versions = 2;
  return s;
}

Schedule hetpipe(const Sizes& sizes) {
  Schedule s = without_flush("hetpipe", sizes, sizes.micro_batches, 1);
  s.version_rule = VersionRule::Wave;
  s.most_versions = std::max(2, sizes.micro_batches);
  return s;
}

}  // namespace hetu
