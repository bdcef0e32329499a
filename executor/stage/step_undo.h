// Restores a worker's stages after a run that failed. Part of train_stages.h.
#pragma once
#include <vector>

#include "executor/stage/buffer_means.h"
#include "executor/stage/feeds_ahead.h"
#include "executor/stage/stage.h"

namespace hetu {

/// The state before a training step, to which an error returns.
class StepUndo {
 public:
  /// `stages` are the stages of this worker. All arguments must outlive the object.
  StepUndo(std::vector<Stage*> stages, StepContext& context, Device& device, BufferMeans& buffers,
           FeedsAhead& ahead)
      : stages_(std::move(stages)),
        context_(context),
        device_(device),
        buffers_(buffers),
        ahead_(ahead) {}

  /// Saves what a training step of a single-process job changes before its update: buffers (running
  /// statistics).
  void prepare() {
    has_begun_update_ = false;
    buffers_.keep();
  }
  /// Notes that weights may change from here on.
  void begin_update() { has_begun_update_ = true; }
  /// Returns true if the step of the last prepare() has begun its update. For plans with one update
  /// per step.
  bool has_begun_update() const { return has_begun_update_; }

  /// Resets the stages after an error in a run, so that the next run starts as if the failed run
  /// had not been. Weights and optimizer states stay as they are. With `restores_buffers`, buffers
  /// return to the state saved by prepare(). Throws the device's error if it can't continue.
  void recover(bool restores_buffers) {
    device_.uploads().recover();
    device_.queue().recover();
    for (Stage* stage : stages_) stage->recover();
    ahead_.recover();
    context_.kept_bytes = context_.live_halves = 0;
    if (restores_buffers) buffers_.restore_kept();
    device_.queue().record().wait();
  }

 private:
  std::vector<Stage*> stages_;
  StepContext& context_;
  Device& device_;
  BufferMeans& buffers_;
  FeedsAhead& ahead_;
  bool has_begun_update_ = false;
};

}  // namespace hetu
