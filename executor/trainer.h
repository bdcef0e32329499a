// Training as one object per worker: from a graph, an optimizer and sizes to a proved schedule,
// compiled stages and steps. Python's Executor and C++ programs both use it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "executor/averager.h"
#include "executor/block_times.h"
#include "executor/checkpoint.h"
#include "executor/comm/transport.h"
#include "executor/host_memory.h"
#include "executor/optimizer.h"
#include "executor/plan.h"
#include "executor/repeated_run.h"
#include "executor/row_needs.h"
#include "executor/run_trace.h"
#include "executor/train_runner.h"
#include "graph/base/trace.h"
#include "pipeline/schedule.h"
#include "pipeline/verify.h"

namespace hetu {

/// This pipeline's place in a job whose pipelines may die one by one: the transport of its trainers
/// links its own workers alone, and weights go to the others through `door`.
struct Apart {
  int pipeline = 0;
  comm::MeshPlace door;  ///< endpoint and keys
};

/// Pipelines that average their weights, each at its own pace, instead of summing gradients at
/// every update.
struct Averaging {
  groups::Options policy;  ///< stages and pipelines are the job's
  bool overlap = true;     ///< averages go on beside compute; with P = 1 they never do
  /// This worker's line to the coordinator; called once, while the trainer is made.
  std::function<std::unique_ptr<ps::GroupClient>(const ps::ClientOptions&)> connect;
  std::string group_log = {};       ///< see ps::ClientOptions
  std::optional<Apart> apart = {};  ///< the job goes on without a pipeline that dies
  std::function<void(const Averaged&)> observe = {};  ///< see AverageOptions
};

struct TrainerOptions {
  std::string method = "1f1b";  ///< a name of pipeline/generate.h
  std::optional<Schedule>
      plan;  ///< a compute-only schedule in place of the method's; sizes must agree
  int pipelines = 1;
  int stages = 1;  ///< workers of a pipeline; each has one stage, or more by the method
  int chunks =
      0;          ///< stages per worker, for methods that take it; 0: as many as it has unless told
  int pairs = 1;  ///< pipelines down, and as many up (chimera)
  std::string concat = "direct";  ///< of more micro-batches than stages (chimera)
  bool with_recompute = false;    ///< activations are made again before each backward
  bool runtime_rule = false;  ///< RunPolicy::ForwardBeforeLateGradient, for methods that take it
  SyncPlace sync = SyncPlace::EagerOpt;  ///< where the gradient sums of a stage start
  /// Of each stage, where stages have replicas of their own: one pipeline, micro-batch g of a step
  /// on replica g mod D. Empty: 1 each.
  std::vector<int> replicas = {};
  int micro_batches = 1;         ///< per pipeline and step, which is one update
  std::int64_t batch_size = 1;   ///< samples per pipeline and step; micro_batches must divide it
  std::vector<int> first_block;  ///< of each model stage; empty: balanced by FLOPs
  std::uint64_t seed = 0;
  int threads = 0;                ///< per worker; 0: as OpenMP says
  std::int64_t memory_limit = 0;  ///< bytes per worker; 0: none
  KernelChoice kernels = KernelChoice::Best;
  std::optional<Averaging> averaging = {};
  Stragglers disturb = {};  ///< hetero, slow and seed count; see disturbance.h
};

/// What one step reports; the same on every worker.
struct StepResult {
  std::int64_t step = 0;  ///< index, from 0
  std::vector<NamedScalar> scalars;
  double gradient_norm = 0;  ///< before clipping; 0 in validation
  double learning_rate = 0;  ///< of this step's update
  bool stop_asked = false;   ///< a worker had called ask_to_stop() before this step
  bool last = false;         ///< of its run: every update is applied
  /// Batches of all pipelines since the result before. Where pipelines average weights: as far as
  /// this worker has heard of the others.
  std::int64_t batches = 1;

  /// The scalar of that fetch. Throws InvalidArgument naming the fetches there are.
  double at(const std::string& name) const;
};

/// A field that this worker must be fed, with the shape of one sample.
struct FeedSpec {
  std::string name;
  DType dtype = DType::Float32;
  Shape sample_shape;
};

/// A source of fed bytes: where `rows` samples of a field lie, dense.
using FieldLookup = std::function<const void*(const std::string& field, std::int64_t bytes)>;

/// Reads the next batch of this pipeline, once per step; the lookup holds until the next call.
using BatchSource = std::function<FieldLookup()>;

class Trainer {
 public:
  /// Every worker of `transport` (pipelines * stages of them, worker = pipeline * stages + stage;
  /// or one per replica, stage by stage; or the stages of one pipeline, see Apart) makes its own
  /// with the same arguments. The transport must outlive it. Throws InvalidArgument (sizes that do
  /// not fit, a plan over the memory limit), Unsupported, Plan.
  Trainer(Graph graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
          comm::Transport& transport);
  ~Trainer();

  /// Throws what some worker of such a job would throw while it is made, as far as that needs
  /// neither links nor a coordinator: plans that are not proved or do not fit the workers and the
  /// model, disturbances and averages that do not fit the job, too little memory under the limit.
  /// Keeps nothing. Returns the bytes that the worker with the largest peak needs.
  static std::int64_t check(const Graph& graph, const OptimizerConfig& optimizer,
                            const TrainerOptions& options);

  /// Fields this worker reads; empty for stages in the middle that read none.
  const std::vector<FeedSpec>& fields() const { return fields_; }

  /// One step; `lookup` gives this pipeline's batch. Step numbers go up by one from step(). A plan
  /// that updates within itself is filled and drained for it: use begin_run for several steps.
  StepResult train(const FieldLookup& lookup);

  /// Begins a run of `steps` steps; next() gives their results. All workers call both. A plan with
  /// one update per step runs step by step; one that updates within itself is filled once, and
  /// drained once before the last result of the run is given: then every update is applied on every
  /// worker, and one may validate or save.
  void begin_run(std::int64_t steps);
  /// The next step's result, in order; nothing once the run is over. `batches` is called from here,
  /// once per step, where a worker reads fields. In a plan that updates within itself only worker 0
  /// has scalars and norm (elsewhere they are NaN). A run that was asked to stop is shorter; its
  /// last result has `stop_asked`. Pipelines that average weights each have a length of their own:
  /// together they apply at least `steps` updates per pipeline, and before the last result of the
  /// run is given all have one state, the mean of theirs, and step() is the step that `steps` more
  /// lead to. The first worker of a pipeline then has that pipeline's results.
  std::optional<StepResult> next(const BatchSource& batches);
  /// True in the worker that has its pipeline's results: worker 0, or the first of each pipeline
  /// that averages weights.
  bool is_reporter() const { return runs_ ? runs_->is_chief() : true; }
  /// Null unless pipelines average weights.
  Averager* averager() { return averager_.get(); }
  /// True if the plan updates within itself: weights by version, no flush at each step.
  bool is_asynchronous() const { return runs_ != nullptr; }
  /// Forward only, dropout off, newest weights, buffers the mean over pipelines; counts and losses
  /// over the whole batch of all pipelines that the transport links.
  StepResult validate(const FieldLookup& lookup);

  /// Asks all workers to stop together: the next train() reports it on every one, and a run ends.
  void ask_to_stop();

  std::int64_t step() const { return step_; }
  /// Goes on as if `step` steps had been done; for resuming.
  void set_step(std::int64_t step);

  /// Multiplies the learning rate of the updates that follow; the same on every worker. Throws
  /// InvalidArgument.
  void set_rate_factor(double factor);

  /// Before state() is saved: every pipeline goes on from the mean of their buffers (running
  /// statistics), as a job that resumes does. Every worker calls it.
  void settle() { runner_->average_buffers(); }

  std::vector<StateTensor> state() const { return runner_->state(); }
  std::vector<StateTensor> gradients() const { return runner_->gradients(); }
  /// Notes, from here on, what kernels make in training steps; nullptr: nothing. See TensorLog.
  void log_tensors(TensorLog* log) { runner_->log_tensors(log); }
  /// Notes the gradient sums, or the weights, as they are.
  void log_state(TensorLog& log, TensorRecord::What what) const;
  /// See TrainRunner.
  void on_gradients(std::function<void()> whole) { runner_->on_gradients(std::move(whole)); }
  const Graph& graph() const { return graph_; }
  const Schedule& schedule() const { return lowered_; }
  const TrainerOptions& options() const { return options_; }
  const OptimizerConfig& optimizer() const { return optimizer_; }
  const WorkerMemory& memory() const { return memory_; }
  /// Most activations that this worker keeps at once: as the plan has it, and as it was so far.
  ActivationPeak planned_peak() const;
  ActivationPeak measured_peak() const { return runner_->measured_peak(); }
  int pipeline() const { return pipeline_; }
  /// Whether this worker is in the pipeline that logs: the first of those that live.
  bool in_first_pipeline() const { return averager_ ? averager_->is_first() : pipeline_ == 0; }
  /// The lowest model stage of this worker; kNone if it has none.
  int stage() const { return stages_.empty() ? kNone : stages_[0].stage; }
  /// What this worker writes to checkpoints: its stages of which it has the first copy.
  std::vector<SavePart> save_parts() const;

  /// Starts or stops recording instructions.
  void record(bool on);
  /// Writes what all workers recorded since record(true), beside what the plan predicts from the
  /// typical ones of those times, as one trace file with the plan and the costs in its metadata.
  /// Every worker calls it; worker 0 writes. Throws Io.
  void write_trace(const std::string& path);

 private:
  struct StageHere {  // by model stage, then replica
    int stage = 0;
    int placement = 0;
    bool is_first_copy = true;
    std::int64_t saved = 0;  // bytes per micro-batch
  };

  enum class Stop : std::uint8_t { Planned };
  Trainer(Graph graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
          comm::Transport& transport, Stop stop);
  Schedule compute_plan(int steps) const;
  Schedule lowered_for(int steps) const;
  void plan();
  void build();
  StepResult result_of(const StepReport& report) const;
  void begin_averaged_run(std::int64_t steps);
  void count_batches(StepResult& result);
  bool any_asks_to_stop();
  std::int64_t mean_updates();
  void end_run();
  void cut(const Schedule& compute);
  CompileOptions compile_options(const StageNeeds& needs, const StageSlots& slots) const;
  std::vector<std::unique_ptr<StagePlan>> compile(const VerifyReport& report, int send_slots);
  void add_field(const StageFeed& feed, std::int64_t micro_batch);
  std::string stages_text() const;
  void check_averaging(const Schedule& plan) const;
  groups::Options group_policy() const;
  void join_groups();
  comm::Group own_pipeline() const;
  int number() const;
  void warn_of_ties() const;
  void check_memory() const;
  std::vector<WorkerNeed> needs();
  void check_hosts();
  void feed(const FieldLookup& lookup);

  Graph graph_;
  OptimizerConfig optimizer_;
  TrainerOptions options_;
  comm::Transport& transport_;
  int linked_ = 1;  // pipelines whose workers the transport links
  int pipeline_ = 0;
  int row_ = 0;  // worker within the pipeline
  std::vector<StageHere> stages_;
  std::vector<FeedSpec> fields_;
  Schedule lowered_;
  WorkerMemory memory_;
  comm::Reducer reducer_;
  std::unique_ptr<Disturbance> disturbance_;  // null: none
  std::unique_ptr<comm::Mesh> mesh_;          // null unless pipelines may die one by one
  std::unique_ptr<ps::GroupClient> groups_;   // null unless pipelines average weights
  std::unique_ptr<Averager> averager_;
  std::unique_ptr<TrainRunner> runner_;
  std::unique_ptr<Interpreter> training_;
  std::unique_ptr<Interpreter> validation_;
  std::unique_ptr<RepeatedRun> runs_;  // null for plans with one update per step
  Lowering how_;
  Schedule one_step_;                                    // as given, without messages
  int micro_ids_ = 0;                                    // see RunnerOptions
  std::vector<std::unique_ptr<StagePlan>> stage_plans_;  // until the runner has them
  std::int64_t run_left_ = 0;  // steps of the run that are to come; averaged: 1 until its end
  bool asks_to_stop_ = false, stop_asked_ = false;  // averaged
  std::int64_t batches_before_ = 0;                 // averaged: of all pipelines, in this run
  std::int64_t run_begin_ = 0;                      // averaged: step() before it
  std::int64_t run_end_ = 0;                        // averaged: the step that the run leads to
  std::vector<PlannedRun> recorded_;                // where runs_ is not
  std::unique_ptr<TraceRecorder> trace_;
  std::unique_ptr<BlockTimes> blocks_;  // recorded with it
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
};

/// Micro-batches per step that a method trains with unless told: 1 where it updates after each, so
/// that a batch is one micro-batch; else 4. Throws InvalidArgument, naming the known methods.
int default_micro_batches(const std::string& method);

/// First block of each of `stages` stages such that the dearest stage is as cheap as possible, by
/// FLOPs of forward and backward. Throws InvalidArgument, naming how many stages the cut-points
/// allow, if there are fewer blocks than stages.
std::vector<int> balance_stages(const Graph& graph, int stages);

}  // namespace hetu
