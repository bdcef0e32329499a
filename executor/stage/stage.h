// One stage on a device: its functions by kind of instruction, the slots that they take and give
// back, its messages and its gradient sums.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/block_times.h"
#include "executor/stage/gradient_buckets.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/stages.h"
#include "executor/stage/tensor_log.h"

namespace hetu {

/// What the stages of a worker have in common in a run. They refer to it.
struct StepContext {
  const Schedule* plan = nullptr;
  int pipeline = 0;
  int micro_batches = 1;    ///< per pipeline and step
  int micro_ids = 1;        ///< any two micro-batches in work differ by less; see SlotRing
  bool by_version = false;  ///< weights go by version: the plan updates while it runs
  std::uint64_t seed = 0;
  bool training = true;
  int step = 0;                          ///< the first of the run
  BlockTimes* block_times = nullptr;     ///< where times of blocks are noted; null: nowhere
  TensorLog* tensor_log = nullptr;       ///< where results of kernels are noted; null: nowhere
  int live_halves = 0, most_halves = 0;  ///< gradients to come of micro-batches run forward
  std::int64_t kept_bytes = 0, most_bytes = 0;  ///< of saved slots

  int step_of(int micro) const { return micro / micro_batches; }
  std::size_t cell(int micro) const { return static_cast<std::size_t>(micro % micro_ids); }
};

class Stage {
 public:
  /// `placement`: its id in the plan. Graph, context and device must outlive it.
  Stage(const Graph& graph, std::unique_ptr<StagePlan> plan, int placement, StepContext& context,
        Device& device, std::int64_t bucket_bytes);

  const StagePlan& plan() const { return *plan_; }
  StageMemory& memory() { return memory_; }
  const StageMemory& memory() const { return memory_; }
  GradientBuckets& gradients() { return gradients_; }
  const GradientBuckets& gradients() const { return gradients_; }
  int placement() const { return placement_; }
  int replica() const { return replica_; }
  /// Of the stage in one pipeline.
  int copies() const { return copies_; }

  /// The stage at the other end of a local boundary that leaves here.
  void lead_to(std::size_t boundary, Stage& there) { neighbours_[boundary] = &there; }

  void begin_run();
  /// The fields of a step are about to come, and have come: then slots of micro-batches that run on
  /// another replica are given back.
  void begin_batch(int first_micro);
  void end_batch(int first_micro);
  /// One micro-batch of a field.
  void feed(const StageFeed& feed, int micro, const void* from_host);
  /// The counts of a step (masked tokens, samples), over this worker's micro-batches; and what they
  /// are over all. Block.
  std::vector<double> count(int step);
  void set_counts(int step, const std::vector<double>& sums);

  /// A compute instruction: the function of its kind.
  void run(Kind kind, int micro);
  /// True if the micro-batch runs here, not on another replica.
  bool runs_here(int micro) const {
    return own_[static_cast<std::size_t>(micro) % own_.size()] != 0;
  }
  /// Fetch number `fetch` of a micro-batch in work, once the device has done it.
  double fetched(std::size_t fetch, int micro) const {
    return double{fetched_[fetch][context_.cell(micro)]};
  }
  /// Throws InvalidArgument if a fetch of one of these micro-batches is not finite.
  void check_fetches(int first_micro, int count) const;

  int updates() const { return updates_; }
  /// The version after the newest is made, for the update to come.
  void begin_update();
  /// A new sum of gradients begins after an update.
  void begin_sums();

  Buffer out_buffer(const Instr& send);
  std::optional<Buffer> in_buffer(const Instr& recv);
  void received(const Instr& recv);
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
  void before_forward(int micro);
  void after_forward(int micro);
  void before_gradient(int micro);
  void before_recompute(int micro);
  template <bool input, bool weight>
  void after_gradient(int micro);
  void end_gradient(int micro, bool input_done, bool weight_done);
  void give_back(int micro);
  void nothing(int /*micro*/) {}
  void keep(int micro);
  void let_go(int micro);

  int forward_micro(int backward_micro) const {
    return context_.plan->half_micros ? backward_micro / 2 : backward_micro;
  }
  int parts() const { return plan_->half_backward ? 2 : 1; }
  int due() const;
  void run_function(const Function& function, int micro, bool half);
  void launch(const Launch& launch, int micro, const RunContext& context);
  void accumulate(const Accumulate& a, int micro);
  void log(const Launch& launch, int of_all);
  void replace_buffers(int micro);
  void read_fetches(int micro);
  void forget_validated();
  void pack(bool backward, int micro);
  void hand_over(bool backward, int micro);
  void* mirror(const Boundary& boundary, int slot);

  std::unique_ptr<StagePlan> plan_;
  int placement_;
  StepContext& context_;
  const Graph& graph_;
  Device& device_;
  StageMemory memory_;
  GradientBuckets gradients_;
  std::vector<Work> works_;         // by kind
  std::vector<Stage*> neighbours_;  // by boundary: the stage here that it leads to, or null
  // Messages in host memory, where the device's is not: by boundary, slot after slot, and when the
  // last message of a slot was copied to the device.
  std::vector<std::vector<std::byte>> mirrors_;
  std::vector<std::vector<Event>> uploaded_;
  std::vector<std::vector<float>> fetched_;  // by fetch, by micro % micro_ids
  std::vector<const void*> inputs_;          // of the launch
  std::vector<void*> outputs_;
  int backwards_ = 0;            // since the last update: gradients of how many micro-batches
  std::vector<char> half_done_;  // by backward id % micro_ids: one of I and W is done
  std::vector<char> inputs_done_, weights_done_;  // by micro % micro_ids: I and W, of halves too
  int replica_ = 0;
  int copies_ = 1;
  std::vector<char> own_;         // by micro-batch, cyclic
  std::vector<char> recomputed_;  // the same: its backward follows a recompute
  int updates_ = 0;               // in this run of a plan by version
  int forwards_ = 0;              // the next micro-batch's id is at least this
  int validated_ = kNone;         // the micro-batch whose slots a validation forward still holds
};

}  // namespace hetu
