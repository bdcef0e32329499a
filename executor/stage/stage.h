// One stage on a device: its functions by kind of instruction, the slots that they take and
// release, its messages and its gradient sums.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/gradient_buckets.h"
#include "executor/stage/stage_functions.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stage_messages.h"
#include "executor/stage/stages.h"

namespace hetu {

/// A stage of this worker: runs instructions by calling compiled functions.
class Stage {
 public:
  /// Settings for the exchange with other workers. With `direct`, messages go from device memory to
  /// device memory, too.
  using Exchanged = GradientBuckets::How;
  /// `placement` is the stage's id in the plan. Graph, context and device must outlive the object.
  Stage(const Graph& graph, std::unique_ptr<StagePlan> plan, int placement, StepContext& context,
        Device& device, const Exchanged& exchanged);

  const StagePlan& plan() const { return *plan_; }
  StageMemory& memory() { return memory_; }
  const StageMemory& memory() const { return memory_; }
  GradientBuckets& gradients() { return gradients_; }
  const GradientBuckets& gradients() const { return gradients_; }
  int placement() const { return placement_; }
  int replica() const { return replica_; }
  /// Returns the number of copies of the stage in one pipeline.
  int copies() const { return copies_; }

  StageMessages& messages() { return messages_; }

  /// Prepares for a run: empties the gradient sums and makes the newest weights version 0.
  void begin_run();
  /// Resets the stage after an error in a run. All slots are free again, and the next run starts as
  /// if the failed run had not been. Weights and optimizer states stay as they are. The device's
  /// queues must have recovered.
  void recover();
  /// Bracket the feeds of a step: call begin_batch() before the first feed() and end_batch() after
  /// the last. end_batch() releases the slots of micro-batches that run on another replica.
  void begin_batch(int first_micro);
  void end_batch(int first_micro);
  /// Copies one micro-batch of a field to the device. With `on_device`, `from` is a device address.
  void feed(const StageFeed& feed, int micro, const void* from, bool on_device = false);
  /// Enqueues the sums of the counts (masked tokens, samples) of `micros` micro-batches, starting
  /// at `first`.
  void count(int first, int micros);
  /// Returns the sums of the last count(); blocks. set_counted() replaces them by the sums over all
  /// pipelines.
  std::vector<double> counted();
  void set_counted(const std::vector<double>& sums);
  /// Copies the sums to where the kernels of these micro-batches read them.
  void spread_counts(int first, int micros);

  /// Runs a compute instruction: the function of its kind, and the work before and after it.
  void run(Kind kind, int micro);
  /// Runs CURVATURE_A or CURVATURE_B: adds a micro-batch to one factor. The micro-batch's taps are
  /// released once all factors have read them.
  void add_curvature(const Instr& instr);
  /// Prepares for a step whose micro-batches feed the factors.
  void begin_feeding();
  /// Returns true if the micro-batch runs here, not on another replica.
  bool runs_here(int micro) const {
    return own_[static_cast<std::size_t>(micro) % own_.size()] != 0;
  }
  /// Returns fetch number `fetch` of a micro-batch in flight; the device must have computed it.
  /// fetched() returns a float32 scalar, and fetched_bytes() the bytes of any fetch in runs that
  /// don't train. A short micro-batch has fewer bytes.
  double fetched(std::size_t fetch, int micro) const {
    float value = 0;
    std::memcpy(&value, fetched_bytes(fetch, micro), sizeof(value));
    return double{value};
  }
  const std::byte* fetched_bytes(std::size_t fetch, int micro) const {
    return fetched_[fetch].data() +
           static_cast<std::int64_t>(context_.cell(micro)) * plan_->fetches[fetch].bytes;
  }
  /// Returns the number of bytes that a fetch has for this micro-batch.
  std::int64_t bytes_fetched(std::size_t fetch, int micro) const;
  /// Stops downloads of this fetch to host memory.
  void leave_there(std::size_t fetch) { left_.at(fetch) = 1; }
  /// Throws InvalidArgument, in training, if a fetch of one of these micro-batches isn't finite.
  void check_fetches(int first_micro, int count) const;

  /// Returns the next value of a buffer that the forward of a micro-batch has left, where the end
  /// of the step reads it. Only for stages that collect them.
  float* collected(const StageBuffer& buffer, int micro) const {
    Loc at = buffer.collected;
    at.offset += micro % context_.micro_batches * at.stride;
    return memory_.floats(at);
  }

  /// Returns the updates of the stage in this run, for plans with weight versions.
  int updates() const { return updates_; }
  /// Creates the weight version that the coming update changes.
  void begin_update();
  /// Starts new gradient sums after an update.
  void begin_sums();

  /// Returns true if the update can also write the rounded weights. This holds if every launch of
  /// StagePlan::rounded makes a rounded copy of a weight that the update changes. rounded() notes
  /// that the last update wrote them.
  bool rounds_in_update() const { return rounds_in_update_; }
  void rounded() { rounded_at_ = memory_.handed_out(); }

  /// As Stages::overwrites.
  void overwrites(const Instr& compute, std::vector<const void*>& addresses);

 private:
  // A kind's function, with the member functions that run before and after it.
  struct Work {
    const Function* function = nullptr;
    void (Stage::*before)(int micro) = nullptr;
    void (Stage::*after)(int micro) = nullptr;
    bool half = false;  // micro-batch ids are those of half micro-batches
  };

  Work& work(Kind kind) { return works_[static_cast<std::size_t>(kind)]; }
  void make_works();
  void find_copies(const Placement& mine);
  void initialize_tensors();
  void round_weights(int micro);
  void before_forward(int micro);
  void after_forward(int micro);
  void before_gradient(int micro);
  void before_recompute(int micro);
  template <bool input, bool weight>
  void after_gradient(int micro);
  void end_gradient(int micro, bool input_done, bool weight_done);
  void give_back(int micro);
  void release_feeds(int micro);
  void nothing(int /*micro*/) {}
  void keep(int micro);
  void release_saved(int micro);

  int forward_micro(int backward_micro) const {
    return context_.plan->half_micros ? backward_micro / 2 : backward_micro;
  }
  int parts() const { return plan_->half_backward ? 2 : 1; }
  int due() const;
  double* totals() const { return reinterpret_cast<double*>(totals_.get()); }
  void replace_buffers(int micro);
  void read_fetches(int micro);
  bool is_read(const StageFetch& fetch) const;
  void forget_validated();

  std::unique_ptr<StagePlan> plan_;
  int placement_;
  StepContext& context_;
  const Graph& graph_;
  Device& device_;
  StageMemory memory_;
  GradientBuckets gradients_;
  StageMessages messages_;
  StageFunctions functions_;
  std::vector<Work> works_;                      // by kind
  std::vector<std::vector<std::byte>> fetched_;  // by fetch: the bytes of each micro % micro_ids
  std::vector<char> left_;                       // by fetch: set by leave_there()
  Device::Memory totals_;                        // sums of the counts, float64
  std::vector<double> counts_set_;  // source of an upload: must not change until the next counted()
  std::vector<Queue::Mark> free_feeds_;  // by slot: reached when its last readers are done
  int backwards_ = 0;            // gradients of micro-batches computed since the last update
  std::vector<char> half_done_;  // by backward id % micro_ids: one of I and W is done
  // By micro % micro_ids: number of I and W done (two each with halves).
  std::vector<char> inputs_done_, weights_done_;
  int replica_ = 0;
  int copies_ = 1;
  // By micro-batch that feeds factors: number of outstanding CURVATURE instructions.
  std::vector<int> unread_;
  std::vector<char> own_;         // by micro-batch, cyclic: runs here
  std::vector<char> recomputed_;  // by micro-batch, cyclic: its backward follows a recompute
  bool is_rounded_ = false;       // rounded copies of weights are up to date
  bool rounds_in_update_ = false;
  // StageMemory::handed_out() when an update last rounded the weights.
  std::int64_t rounded_at_ = kNone;
  int updates_ = 0;        // updates of this run, for plans with weight versions
  int forwards_ = 0;       // lower bound of the next micro-batch's id
  int validated_ = kNone;  // micro-batch whose slots a validation forward still holds
};

}  // namespace hetu
