#include "pipeline/generate/placements.h"

namespace hetu {
namespace {

Schedule with_sizes(const char* method, const Sizes& sizes) {
  Schedule s;
  s.method = method;
  s.stages = sizes.stages;
  s.micro_batches = sizes.micro_batches;
  s.workers.resize(sizes.stages);
  return s;
}

}  // namespace

Schedule one_stage_per_worker(const char* method, const Sizes& sizes) {
  Schedule s = with_sizes(method, sizes);
  for (int w = 0; w < sizes.stages; ++w) s.placements.push_back({{w}, w, 0});
  return s;
}

Schedule cyclic_stages(const char* method, const Sizes& sizes) {
  Schedule s = with_sizes(method, sizes);
  s.replica_rule = ReplicaRule::Cyclic;
  for (int stage = 0; stage < sizes.stages; ++stage) {
    for (int r = 0; r < sizes.replicas[stage]; ++r)
      s.placements.push_back({{static_cast<int>(s.placements.size())}, stage, r});
  }
  s.stages = static_cast<int>(s.placements.size());
  s.workers.resize(s.placements.size());
  return s;
}

Schedule looped(const char* method, const Sizes& sizes) {
  Schedule s = with_sizes(method, sizes);
  s.chunks = sizes.chunks;
  for (int i = 0; i < sizes.stages * sizes.chunks; ++i)
    s.placements.push_back({{i % sizes.stages}, i, 0});
  return s;
}

Schedule waves(const char* method, const Sizes& sizes) {
  Schedule s = with_sizes(method, sizes);
  s.chunks = sizes.chunks;
  for (int i = 0; i < sizes.stages * sizes.chunks; ++i) {
    const int along = i % sizes.stages;
    const bool down = i / sizes.stages % 2 == 0;
    s.placements.push_back({{down ? along : sizes.stages - 1 - along}, i, 0});
  }
  return s;
}

Schedule bidirectional(const char* method, const Sizes& sizes) {
  Schedule s = with_sizes(method, sizes);
  const int workers = sizes.stages;
  for (int r = 0; r < 2 * sizes.pairs; ++r) {
    const bool down = r < sizes.pairs;
    const int first = r % sizes.pairs * (workers / sizes.pairs);
    for (int i = 0; i < workers; ++i)
      s.placements.push_back({{((down ? i : workers - 1 - i) + first) % workers}, i, r});
  }
  return s;
}

}  // namespace hetu
