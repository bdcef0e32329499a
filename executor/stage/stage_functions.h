// The compiled functions of a stage, run on its device: kernels one after the other, gradients
// added where they are summed. Used by stage.h, which knows what comes before and after a function.
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

/// What the stages of a worker have in common in a run. They refer to it.
struct StepContext {
  const Schedule* plan = nullptr;
  int pipeline = 0;
  int micro_batches = 1;    ///< per pipeline and step
  int per_update = 1;       ///< of them, those whose gradient one update applies
  int micro_ids = 1;        ///< any two micro-batches in work differ by less; see SlotRing
  bool by_version = false;  ///< weights go by version: the plan updates while it runs
  std::uint64_t seed = 0;
  bool training = true;
  float loss_scale = 1;                  ///< of every gradient, until the optimizer
  bool feeds_factors = false;            ///< the step's micro-batches go into K-FAC's factors
  std::vector<char> nodes = {};          ///< by node: whether this run needs it; empty: all
  std::int64_t rows = kWhole;            ///< of this pipeline in the step, where it may be short
  int step = 0;                          ///< the first of the run
  BlockTimes* block_times = nullptr;     ///< where times of blocks are noted; null: nowhere
  TensorLog* tensor_log = nullptr;       ///< where results of kernels are noted; null: nowhere
  bool repeats = false;                  ///< functions are recorded, and run again as one
  int live_halves = 0, most_halves = 0;  ///< gradients to come of micro-batches run forward
  std::int64_t kept_bytes = 0, most_bytes = 0;  ///< of saved slots

  static constexpr std::int64_t kWhole = -1;

  bool needs(NodeId node) const { return nodes.empty() || nodes[node] != 0; }
  std::int64_t rows_of(std::int64_t whole) const { return rows == kWhole ? whole : rows; }
  /// Samples of a micro-batch of `whole`, of which a short step has fewer, or none.
  std::int64_t samples_of(int micro, std::int64_t whole) const {
    if (rows == kWhole) return whole;
    return std::clamp<std::int64_t>(rows - micro % micro_batches * whole, 0, whole);
  }
  int step_of(int micro) const { return micro / micro_batches; }
  std::size_t cell(int micro) const { return static_cast<std::size_t>(micro % micro_ids); }
};

class StageFunctions {
 public:
  /// All must outlive it.
  StageFunctions(const Graph& graph, const StagePlan& plan, const StepContext& context,
                 Device& device, StageMemory& memory, GradientBuckets& gradients);

  /// How a function runs.
  struct How {
    bool half = false;  ///< the id is that of a half micro-batch
    bool timed = true;  ///< it counts in the times of its block
    bool last = false;  ///< the last gradient before an update: sums of parameters are then final
  };
  void run(const Function& function, int micro, How how);
  /// Forward or count of a micro-batch that may be short, or of no samples.
  void run_samples(const Function& function, int micro);
  /// After an error in run() or run_samples(): the next call starts afresh.
  void recover() { scratch_ = nullptr; }

 private:
  static constexpr std::size_t kKept = 16;  // functions of fewer samples

  int number_of(int micro, bool half) const;  // among the micro-batches of all pipelines
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
  /// Whether it is written into the accumulator.
  bool is_direct(const Accumulate& a) const;

  const Graph& graph_;
  const StagePlan& plan_;
  const StepContext& context_;
  Device& device_;
  StageMemory& memory_;
  GradientBuckets& gradients_;
  std::map<std::pair<const Function*, std::int64_t>, Function> short_;  // by function and samples
  Device::Memory short_scratch_;                                        // of their kernels
  std::int64_t short_scratch_bytes_ = 0;
  Device::Memory counters_;          // of functions that are run again; null: none are
  std::byte* scratch_ = nullptr;     // where the kernels of the function have it; null: as placed
  std::vector<const void*> inputs_;  // of the launch
  std::vector<void*> outputs_;
};

}  // namespace hetu
