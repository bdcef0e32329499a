// Buffers of a worker's stages (running statistics), which are averaged over pipelines before they
// are read or saved. Part of train_stages.h.
#pragma once
#include <vector>

#include "executor/compile/segments.h"
#include "executor/stage/stage.h"
#include "executor/stage/stages_options.h"
#include "net/transport/collective.h"

namespace hetu {

/// The buffers of all stages of a worker.
class BufferMeans {
 public:
  /// `stages` are the stages of this worker, in the order of their placements. All arguments must
  /// outlive the object.
  BufferMeans(const Graph& graph, const StagesOptions& options, std::vector<Stage*> stages,
              Device& device, comm::Transport& transport);

  /// Sets every buffer to the mean of its copies in all pipelines, added in float64 in the order of
  /// pipelines. Collective: every worker calls it with the same step. With a single copy nothing
  /// changes.
  void average(int step);
  /// Sets every buffer to the mean of the next values that the micro-batches of this step have
  /// left, added in float64 in the order of micro-batches; does nothing unless the stages collect
  /// them. Collective, as average().
  void end_step(int step);
  /// Returns the values of all buffers, concatenated; set() writes such values back.
  std::vector<float> values() const;
  void set(const std::vector<float>& values);
  /// Copies the buffers within the device; restore_kept() copies them back. Neither call waits for
  /// the device. keep() throws InvalidArgument if the device has no memory for the copy.
  void keep();
  void restore_kept();

 private:
  // Buffers that the same workers hold: those of a stage or, where pipelines have different cuts,
  // of a segment.
  struct Shared {
    const char* kind = "stage";
    int number = 0;
    comm::Group holders;
    std::vector<const Stage*> copies;  // on this worker
    int of_all = 1;                    // number of copies in all pipelines
    int segment = kNone;               // kNone: all buffers of the stage
  };

  void copy_kept(bool back);
  std::vector<Shared> shared() const;
  std::vector<StageBuffer> buffers_of(const Shared& shared, const Stage& stage) const;
  void average(const Shared& shared, int step);
  void end_step(const Shared& shared, int step);
  std::vector<float> collected(const Shared& shared) const;
  comm::Group holders(int model_stage) const;

  const Graph& graph_;
  const StagesOptions& options_;
  std::vector<Stage*> stages_;
  Device& device_;
  comm::Transport& transport_;
  Device::Memory kept_;  // null until the first keep()
};

}  // namespace hetu
