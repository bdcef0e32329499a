// Stragglers on purpose: a worker of a real run that pauses or takes longer, drawn as the simulator
// draws them. `--hetero` and `--slow` of training.
#pragma once
#include <cstdint>

#include "pipeline/cost/stragglers.h"

namespace hetu {

/// Times in Stragglers are seconds here, and counted from the making of the injector.
class StragglerInjector {
 public:
  /// Of one worker; `width` workers form a pipeline. Only hetero, slow and seed of the options
  /// count.
  StragglerInjector(Stragglers options, int worker, int width);

  /// Before a compute instruction: pauses, or does not.
  void before();
  /// After one that started at `start_ns` of comm::now_ns(): sleeps as long as it is slower.
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
