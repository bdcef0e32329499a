// Brings a worker's stages back to where they were before a run that failed. Part of
// train_stages.h.
#pragma once
#include <vector>

#include "executor/stage/buffer_means.h"
#include "executor/stage/feeds_ahead.h"
#include "executor/stage/stage.h"

namespace hetu {

class StepUndo {
 public:
  /// `stages`: those of this worker. All must outlive it.
  StepUndo(std::vector<Stage*> stages, StepContext& context, Device& device, BufferMeans& buffers,
           FeedsAhead& ahead)
      : stages_(std::move(stages)),
        context_(context),
        device_(device),
        buffers_(buffers),
        ahead_(ahead) {}

  /// Before a training step of a job of one worker: remembers what the step changes before its
  /// update, which are buffers (running statistics).
  void prepare() {
    has_begun_update_ = false;
    buffers_.keep();
  }
  /// From here on weights may change.
  void begin_update() { has_begun_update_ = true; }
  /// True if the step of the last prepare() has begun its update. Of a plan that makes one update
  /// per step.
  bool has_begun_update() const { return has_begun_update_; }

  /// After an error in a run: the next run starts as if that run had not been. Weights and
  /// optimizer states stay as they are; `restores_buffers`: buffers become what prepare()
  /// remembered. Throws what the device reports if it can't go on.
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
