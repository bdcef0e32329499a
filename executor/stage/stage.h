// One stage on a device: its functions by kind of instruction, the slots that they take and give
// back, its messages and its gradient sums.
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

class Stage {
 public:
  /// What goes to other workers: gradients in buckets of at least so many bytes; `direct`: from and
  /// to the device's memory.
  struct Exchanged {
    std::int64_t bucket_bytes = 1;
    bool direct = false;
  };
  /// `placement`: its id in the plan. Graph, context and device must outlive it.
  Stage(const Graph& graph, std::unique_ptr<StagePlan> plan, int placement, StepContext& context,
        Device& device, const Exchanged& exchanged);

  const StagePlan& plan() const { return *plan_; }
  StageMemory& memory() { return memory_; }
  const StageMemory& memory() const { return memory_; }
  GradientBuckets& gradients() { return gradients_; }
  const GradientBuckets& gradients() const { return gradients_; }
  int placement() const { return placement_; }
  int replica() const { return replica_; }
  /// Of the stage in one pipeline.
  int copies() const { return copies_; }

  StageMessages& messages() { return messages_; }

  void begin_run();
  /// After an error in a run: everything that the run held is free again, and the next run starts
  /// as if that run had not been. Weights and optimizer states stay as they are. The device's
  /// queues must have recovered.
  void recover();
  /// The fields of a step are about to come, and have come: then slots of micro-batches that run on
  /// another replica are given back.
  void begin_batch(int first_micro);
  void end_batch(int first_micro);
  /// One micro-batch of a field.
  void feed(const StageFeed& feed, int micro, const void* from, bool on_device = false);
  /// Gives the device what adds up the counts (masked tokens, samples) of `micros` micro-batches
  /// from `first` on.
  void count(int first, int micros);
  /// What that came to, which blocks; and what it is over all pipelines.
  std::vector<double> counted();
  void set_counted(const std::vector<double>& sums);
  /// Where these micro-batches read them.
  void spread_counts(int first, int micros);

  /// A compute instruction: the function of its kind.
  void run(Kind kind, int micro);
  /// CURVATURE_A, CURVATURE_B: a micro-batch of the step that feeds factors goes into one. What was
  /// kept of it is free once all have it.
  void add_curvature(const Instr& instr);
  /// The micro-batches of the step to come feed factors.
  void begin_feeding();
  /// True if the micro-batch runs here, not on another replica.
  bool runs_here(int micro) const {
    return own_[static_cast<std::size_t>(micro) % own_.size()] != 0;
  }
  /// Fetch number `fetch` of a micro-batch in work, once the device has done it: a float32 scalar,
  /// or, in runs that do not train, its bytes, of which a short micro-batch has fewer.
  double fetched(std::size_t fetch, int micro) const {
    float value = 0;
    std::memcpy(&value, fetched_bytes(fetch, micro), sizeof(value));
    return double{value};
  }
  const std::byte* fetched_bytes(std::size_t fetch, int micro) const {
    return fetched_[fetch].data() +
           static_cast<std::int64_t>(context_.cell(micro)) * plan_->fetches[fetch].bytes;
  }
  std::int64_t bytes_fetched(std::size_t fetch, int micro) const;
  /// Its bytes are not wanted in host memory any more.
  void leave_there(std::size_t fetch) { left_.at(fetch) = 1; }
  /// Throws InvalidArgument if a fetch of one of these micro-batches is not finite.
  void check_fetches(int first_micro, int count) const;

  int updates() const { return updates_; }
  /// The version after the newest is made, for the update to come.
  void begin_update();
  /// A new sum of gradients begins after an update.
  void begin_sums();

  /// Whether an update can leave all that is made of weights once per update as it is to be: it is
  /// rounded copies of weights that it changes. rounded(): the one behind us has.
  bool rounds_in_update() const { return rounds_in_update_; }
  void rounded() { rounded_at_ = memory_.handed_out(); }

  /// As in Stages.
  void overwrites(const Instr& compute, std::vector<const void*>& addresses);

 private:
  // What an instruction of a kind runs, and what comes before and after the function.
  struct Work {
    const Function* function = nullptr;
    void (Stage::*before)(int micro) = nullptr;
    void (Stage::*after)(int micro) = nullptr;
    bool half = false;  // ids are those of half micro-batches
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
  void let_go(int micro);

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
  std::vector<std::vector<std::byte>> fetched_;  // by fetch: of each micro % micro_ids its bytes
  std::vector<char> left_;                       // by fetch: it is not read
  Device::Memory totals_;                        // of counts, float64
  std::vector<double> counts_set_;               // may be read until the next counted()
  std::vector<Queue::Mark> free_feeds_;          // by slot: nobody reads what it held
  int backwards_ = 0;            // since the last update: gradients of how many micro-batches
  std::vector<char> half_done_;  // by backward id % micro_ids: one of I and W is done
  std::vector<char> inputs_done_, weights_done_;  // by micro % micro_ids: I and W, of halves too
  int replica_ = 0;
  int copies_ = 1;
  std::vector<int> unread_;       // by micro-batch that feeds factors: pieces of it to come
  std::vector<char> own_;         // by micro-batch, cyclic
  std::vector<char> recomputed_;  // the same: its backward follows a recompute
  bool is_rounded_ = false;       // the copies of weights that products read are today's
  bool rounds_in_update_ = false;
  std::int64_t rounded_at_ = kNone;  // StageMemory::handed_out() when an update rounded them
  int updates_ = 0;                  // in this run of a plan by version
  int forwards_ = 0;                 // the next micro-batch's id is at least this
  int validated_ = kNone;            // the micro-batch whose slots a validation forward still holds
};

}  // namespace hetu
