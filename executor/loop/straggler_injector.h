// Artificial stragglers: a worker of a real run that pauses or takes longer, by the same random
// rule as in the simulator. Implements `--hetero` and `--slow` of training.
#pragma once
#include <cstdint>

#include "pipeline/cost/stragglers.h"

namespace hetu {

/// Delays the compute of one worker. Times in Stragglers are in seconds, counted from the
/// construction of the injector.
class StragglerInjector {
 public:
  /// For worker `worker`, where `width` workers form a pipeline. Only hetero, slow and seed of the
  /// options are used.
  StragglerInjector(Stragglers options, int worker, int width);

  /// Call before a compute instruction: sleeps if the instruction is one that pauses.
  void before();
  /// Call after a compute instruction that started at `start_ns` of comm::now_ns(): sleeps for the
  /// time by which a slowed worker takes longer.
  void after(std::int64_t start_ns);

 private:
  Stragglers options_;
  int worker_;
  int pipeline_;
  std::int64_t origin_ns_;
  std::int64_t computed_ = 0;
};

/// Throws InvalidArgument as check_stragglers(), and if a factor is below 1.
void check_injection(const Stragglers& options, int pipelines, int workers);

}  // namespace hetu
