// Execution of a stage's compiled functions on its device: kernels run in order, and gradients are
// added to their sums. Used by stage.h, which does the work before and after a function.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/device/device.h"
#include "executor/stage/block_times.h"
#include "executor/stage/gradient_buckets.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/tensor_log.h"

namespace hetu {

/// Run state that the stages of a worker share; each stage refers to it.
struct StepContext {
  const Schedule* plan = nullptr;
  int first_micro = 0;    ///< micro-batches of a step in the pipelines before this one
  int micro_batches = 1;  ///< of this pipeline per step
  int per_update = 1;     ///< micro-batches whose gradient one update applies
  int micro_ids = 1;      ///< ids of any two micro-batches in flight differ by less; see SlotRing
  /// The plan updates while it runs, so that forwards use weight versions.
  bool by_version = false;
  std::uint64_t seed = 0;
  bool training = true;
  float loss_scale = 1;               ///< factor of every gradient until the optimizer
  bool feeds_factors = false;         ///< the step's micro-batches feed K-FAC's factors
  std::vector<char> nodes = {};       ///< by node: this run needs it; empty: all nodes
  std::int64_t rows = kWhole;         ///< rows of this pipeline in the step; kWhole: a full step
  int step = 0;                       ///< first step of the run
  BlockTimes* block_times = nullptr;  ///< where times of blocks are recorded; null: nowhere
  TensorLog* tensor_log = nullptr;    ///< where results of kernels are recorded; null: nowhere
  bool repeats = false;  ///< functions are recorded and replayed as one (Queue::repeat)
  /// Outstanding input and weight gradients of micro-batches whose forward has run; most_halves is
  /// the maximum so far.
  int live_halves = 0, most_halves = 0;
  std::int64_t kept_bytes = 0, most_bytes = 0;  ///< of saved slots in use

  static constexpr std::int64_t kWhole = -1;

  /// Returns true if this run computes the node.
  bool needs(NodeId node) const { return nodes.empty() || nodes[node] != 0; }
  /// Returns the number of rows of this pipeline in the step.
  std::int64_t rows_of(std::int64_t whole) const { return rows == kWhole ? whole : rows; }
  /// Returns the samples of a micro-batch of `whole` samples; a short step may have fewer, or none.
  std::int64_t samples_of(int micro, std::int64_t whole) const {
    if (rows == kWhole) return whole;
    return std::clamp<std::int64_t>(rows - micro % micro_batches * whole, 0, whole);
  }
  /// Returns the step of a micro-batch, counted from the start of the run.
  int step_of(int micro) const { return micro / micro_batches; }
  /// Returns the index of a micro-batch in a table with micro_ids entries.
  std::size_t cell(int micro) const { return static_cast<std::size_t>(micro % micro_ids); }
};

/// Runs the compiled functions of one stage.
class StageFunctions {
 public:
  /// All arguments must outlive the object.
  StageFunctions(const Graph& graph, const StagePlan& plan, const StepContext& context,
                 Device& device, StageMemory& memory, GradientBuckets& gradients);

  /// Options of a run.
  struct How {
    bool half = false;  ///< `micro` is the id of a half micro-batch
    bool timed = true;  ///< record times of blocks, if the context has a BlockTimes
    /// Last gradient before an update, after which the sums of parameters are final.
    bool last = false;
  };
  /// Runs a function on a micro-batch.
  void run(const Function& function, int micro, How how);
  /// Runs forward or count on a micro-batch that may be short or have no samples.
  void run_samples(const Function& function, int micro);
  /// Resets state after an error in run() or run_samples().
  void recover() { scratch_ = nullptr; }

 private:
  // Most functions kept that were compiled for fewer samples.
  static constexpr std::size_t kKept = 16;

  int number_of(int micro, bool half) const;  // index among the micro-batches of all pipelines
  RunContext context_of(int micro, bool half) const;
  bool may_repeat(const Function& function, const How& how) const;
  std::string key_of(const Function& function, int micro, const How& how) const;
  void run_launches(const Function& function, int micro, const How& how, const RunContext& run);
  void launch(const Launch& launch, int micro, const RunContext& context);
  const Function& of_samples(const Function& function, std::int64_t samples);
  void compute(const Launch& launch, std::span<const Accumulate> accumulates, int micro,
               const RunContext& context);
  void add_rows(const Launch& launch, int micro);
  void add_staged(const StageUse& use);
  void keep_taps(const Function& function, int after_launch, int micro);
  void add_gradient(const Accumulate& a, int micro);
  void accumulate(const Accumulate& a, int micro, bool last);
  bool is_read(const Launch& packing) const;
  bool is_comparable(const Launch& launch) const;
  void log(const Launch& launch, std::span<const Accumulate> accumulates, int micro, int of_all);
  void log(NodeId node, std::vector<void*> results, int of_all);
  /// Returns true if the launch writes the gradient straight into the accumulator.
  bool is_direct(const Accumulate& a, int micro) const;
  /// Returns the number of a micro-batch for gradient sums. A plan with half micro-batches adds
  /// them in no tree, so their number doesn't matter.
  int leaf(int micro) const { return number_of(micro, false); }

  const Graph& graph_;
  const StagePlan& plan_;
  const StepContext& context_;
  Device& device_;
  StageMemory& memory_;
  GradientBuckets& gradients_;
  std::map<std::pair<const Function*, std::int64_t>, Function> short_;  // by function and samples
  Device::Memory short_scratch_;  // scratch of the functions in short_
  std::int64_t short_scratch_bytes_ = 0;
  Device::Memory counters_;       // step and sample offset of replayed functions; null: no replays
  std::byte* scratch_ = nullptr;  // overrides the kernels' scratch address; null: as compiled
  std::vector<const void*> inputs_;  // of the current launch
  std::vector<void*> outputs_;
};

}  // namespace hetu
