// Stragglers on purpose: a worker of a real run that pauses or takes longer, drawn as the simulator
// draws them. `--hetero` and `--slow` of training.
#pragma once
#include <cstdint>

#include "pipeline/simulate.h"

namespace hetu {

/// Times in SimulateOptions are seconds here, and counted from the disturbance's making.
class Disturbance {
 public:
  /// Of one worker; `width` workers form a pipeline. Only hetero, slow and seed of the options
  /// count.
  Disturbance(SimulateOptions options, int worker, int width);

  /// Before a compute instruction: pauses, or does not.
  void before();
  /// After one that started at `start_ns` of comm::now_ns(): sleeps as long as it is slower.
  void after(std::int64_t start_ns);

 private:
  SimulateOptions options_;
  int worker_;
  std::int64_t origin_ns_;
  std::int64_t computed_ = 0;
};

/// Throws InvalidArgument if a slowdown names a pipeline or a worker that the job has not, or a
/// factor below 1, or a pause is below 0.
void check_disturbance(const SimulateOptions& options, int pipelines, int workers);

}  // namespace hetu
