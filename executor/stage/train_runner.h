// What a worker does at each instruction of a training schedule: runs the compiled functions of its
// stages. Driven by the interpreter; owns weights, optimizer state and activations.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/comm/collective.h"
#include "executor/comm/tag_kinds.h"
#include "executor/compile/plan.h"
#include "executor/compile/row_needs.h"
#include "executor/loop/interpreter.h"
#include "executor/stage/block_times.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/stage_memory.h"
#include "executor/stage/tensor_log.h"
#include "executor/state/state_tensor.h"
#include "executor/sync/averager.h"

namespace hetu {

/// Where this worker stands in the job, and what it sums with whom.
struct RunnerOptions {
  const Schedule* plan = nullptr;  ///< lowered; must outlive the runner
  int pipeline = 0;
  int pipelines = 1;  ///< whose workers the transport links
  int workers_per_pipeline = 1;
  int micro_batches = 1;  ///< per pipeline and step
  int micro_ids = 1;      ///< any two micro-batches in work differ by less; see SlotRing
  bool repeated = false;  ///< the plan updates within itself: its body repeats, weights by version
  std::uint64_t seed = 0;
  std::int64_t bucket_bytes = 8 << 20;  ///< least size of a gradient bucket
  Averager* averager = nullptr;         ///< of the plan's PARTIAL_REDUCE; must outlive the runner
};

/// A named scalar of a step, summed over micro-batches and pipelines.
struct NamedScalar {
  std::string name;
  double value = 0;
};

class TrainRunner : public StageRunner {
 public:
  /// `plans` are indexed by placement id; null where the placement stands on another worker. The
  /// graph must outlive it.
  TrainRunner(const Graph& graph, std::vector<std::unique_ptr<StagePlan>> plans,
              const OptimizerConfig& optimizer, const RunnerOptions& options,
              comm::Transport& transport);

  /// Called when the fields of the next step are needed: must call feed() for each of `fields()`.
  void set_source(std::function<void()> source) { source_ = std::move(source); }
  /// Fills a fed field for one step: micro_batches * micro_batch rows.
  struct FeedField {
    int stage = 0;
    const StageFeed* feed = nullptr;
    std::int64_t bytes = 0;  ///< of all micro-batches
  };
  const std::vector<FeedField>& fields() const { return fields_; }
  void feed(int field, const void* data);

  /// Where the time of blocks is noted, from here on; nullptr: nowhere.
  void time_blocks(BlockTimes* times) { block_times_ = times; }
  /// Where the results of kernels are noted, from here on, in training and by whole micro-batches;
  /// nullptr: nowhere.
  void log_tensors(TensorLog* log) { tensor_log_ = log; }
  /// Called in every training step of a synchronous plan when its gradient sums are whole, before
  /// norm and update.
  void on_gradients(std::function<void()> whole) { gradients_whole_ = std::move(whole); }

  /// Training (dropout on, gradients follow) or validation, for the steps from here on.
  void set_training(bool training) { training_ = training; }

  void begin_step(int step) override;
  void forward(int stage, int micro) override;
  void backward(int stage, int micro) override;
  void input_grad(int stage, int micro) override;
  void weight_grad(int stage, int micro) override;
  void recompute(int stage, int micro) override;
  void update(int stage, int step) override;
  void begin_average(int stage, int step) override;
  std::int64_t end_average(int stage) override;
  void reduce_scalars(comm::Transport& transport, int step) override;
  Buffer out_buffer(const Instr& send) override;
  std::optional<Buffer> in_buffer(const Instr& recv) override;
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override;
  std::vector<int> buckets(const Instr& reduce) override;
  Bucket bucket(int stage, int bucket) override;

  /// Gives every buffer the mean of its copies in all pipelines, added in float64 in the order of
  /// pipelines; every worker calls it. With one pipeline nothing changes.
  void average_buffers();
  /// Where pipelines average weights: a run of about `steps` updates each begins, or has ended on
  /// all of them, which then have one state again: the mean of weights, optimizer states and
  /// buffers. Every worker calls both.
  void begin_averaged_run(std::int64_t steps);
  void end_averaged_run();
  /// The buffers as they are, one after the other, and back: validation sees the mean and leaves no
  /// trace.
  std::vector<float> buffers() const;
  void set_buffers(const std::vector<float>& values);

  /// Asks, in the steps from here on, that all workers stop.
  void ask_to_stop() { asks_to_stop_ = true; }

  /// Results of the last step, the same on every worker; valid after reduce_scalars.
  const std::vector<NamedScalar>& scalars() const { return scalars_; }
  /// Whether any worker had asked to stop when the last training step began.
  bool stop_asked() const { return stop_asked_; }
  double gradient_norm() const { return norm_; }

  /// All weights, optimizer states and buffers of this worker, in model order; buffers last.
  std::vector<StateTensor> state() const;
  /// The same of one placement of this worker.
  std::vector<StateTensor> state(int placement) const;
  /// Gradient sums of the last step, before clipping, in model order.
  std::vector<StateTensor> gradients() const;
  std::vector<StateTensor> gradients(int placement) const;
  /// The most that training has kept at once so far; equal to what the plan says.
  ActivationPeak measured_peak() const {
    return {most_halves_ / (2.0 * options_.plan->chunks), most_bytes_};
  }
  /// Updates applied so far; learning rates count them.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }
  void set_rate_factor(double factor) { optimizer_.rate.factor = factor; }
  std::vector<StepReport> take_reports() override { return std::exchange(reports_, {}); }

 private:
  struct GradientRange {  // a bucket: accumulators that lie one after the other
    float* data = nullptr;
    std::int64_t elements = 0;
    int tied_pair = kNone;
    int parameters = 0;  // how many gradients it waits for in the last backward
    int missing = 0;
    bool shared = false;  // another stage of this worker adds to it
  };
  struct Stage {
    std::unique_ptr<StagePlan> plan;
    std::unique_ptr<StageMemory> memory;
    std::vector<char> fresh;     // by use: nothing accumulated yet in this step
    std::vector<int> bucket_of;  // by parameter of the plan
    std::vector<GradientRange> buckets;
    std::vector<int> neighbours;  // by boundary: the placement here that it leads to, or kNone
    std::vector<std::vector<double>> fetched;  // by fetch, by micro % micro_ids
    int backwards = 0;            // since the last update: gradients of how many micro-batches
    std::vector<char> half_done;  // by backward id % micro_ids: one of I and W is done
    std::vector<char> inputs, weights;  // by micro % micro_ids: I and W done, of halves too
    int replica = 0;
    std::vector<char> own;         // by micro-batch, cyclic: it runs here, not on another replica
    std::vector<char> recomputed;  // the same: its backward follows a recompute
    int copies = 1;                // of the stage in all pipelines
    int updates = 0;               // in this run of a repeated plan
    int forwards = 0;              // the next micro-batch's id is at least this
    int validated = kNone;         // the micro-batch whose slots a validation forward still holds
  };

  struct Holder {  // of a parameter that several stages here hold
    int placement = 0;
    int parameter = 0;  // of the stage's plan
  };
  struct Shared {
    std::vector<Holder> holders;  // in the order in which their gradients are added
    std::size_t lead = 0;         // the one that is summed with other workers (reduction.h)
    bool joined = false;          // in this step
  };

  Stage& at(int placement);
  int step_of(int micro) const { return micro / options_.micro_batches; }
  std::size_t cell(int micro) const { return static_cast<std::size_t>(micro % options_.micro_ids); }
  bool runs_here(const Stage& stage, int micro) const {
    return stage.own[static_cast<std::size_t>(micro) % stage.own.size()] != 0;
  }
  int due(const Stage& stage) const;
  void note_peak();
  bool counts_for_all(const Stage& stage) const { return speaks_for_all() && stage.replica == 0; }
  // What all linked pipelines have alike counts once.
  bool speaks_for_all() const {
    return options_.pipeline == 0 || options_.pipelines == 1 || alone();
  }
  // This pipeline trains by itself: losses, norms and counts are its own.
  bool alone() const { return options_.averager != nullptr && training_; }
  void begin_batch();
  void begin_sums(Stage& stage);
  void make_buckets(Stage& stage);
  template <class Visit>
  void for_each(const Placement& mine, Kind kind, const Visit& visit) const;
  void find_copies(Stage& stage, const Placement& mine);
  void find_neighbours(Stage& stage, const Placement& mine);
  void hand_over(Stage& stage, bool backward, int micro);
  void find_shared();
  float* gradient_of(const Holder& holder);
  static void clear_unused(Stage& stage);
  void join(Shared& shared);
  void join_all();
  void run_counts(Stage& stage, int step);
  void run(Stage& stage, const Function& function, int micro, bool half = false);
  /// The micro-batch that a backward's id belongs to.
  int forward_micro(int backward_micro) const {
    return options_.plan->half_micros ? backward_micro / 2 : backward_micro;
  }
  void launch(Stage& stage, const Launch& launch, int micro, const RunContext& context);
  void accumulate(Stage& stage, const Accumulate& a, int micro);
  void replace_buffers(Stage& stage, int micro);
  void forget_validated(Stage& stage);
  void read_fetches(Stage& stage, int micro);
  void run_back(Stage& stage, const Function& function, int micro);
  void end_backward(Stage& stage, int micro, bool input_done, bool weight_done);
  void pack(Stage& stage, bool backward, int micro);
  void gradient_done(Stage& stage, int parameter);
  std::vector<double> fetch_sums(int step) const;
  std::vector<double> step_scalars();
  double squares_of(const Stage& stage, const StageParameter& p) const;
  double tied_factor(const Stage& stage, const StageParameter& p) const;
  void clip_alone(Stage& stage, int step);
  comm::Group holders(int model_stage) const;

  const Graph& graph_;
  OptimizerConfig optimizer_;
  RunnerOptions options_;
  comm::Transport& transport_;
  std::vector<Stage> stages_;  // by placement id
  std::vector<Shared> shared_;
  std::vector<FeedField> fields_;
  std::vector<NamedScalar> scalars_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  RunContext context_;
  BlockTimes* block_times_ = nullptr;
  TensorLog* tensor_log_ = nullptr;
  std::function<void()> gradients_whole_;
  bool training_ = true;
  bool asks_to_stop_ = false;
  bool stop_asked_ = false;
  std::function<void()> source_;
  std::vector<StepReport> reports_;
  int step_ = 0;     // the first of the run
  int batches_ = 0;  // steps of the run whose fields are in
  double norm_ = 0;
  double factor_ = 1;
  std::int64_t updates_ = 0;
  std::int64_t run_updates_ = 0;           // of a run of averaged pipelines: rates count no further
  int live_halves_ = 0, most_halves_ = 0;  // gradients to come of micro-batches that are forward
  std::int64_t most_bytes_ = 0;            // of saved slots
};

}  // namespace hetu
