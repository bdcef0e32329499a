// Training as one object per worker: makes its plan (train_plan.h) and runs it, step by step.
// Python's Executor and C++ programs both use it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/device/device.h"
#include "executor/direct/direct_links.h"
#include "executor/job/batches_ahead.h"
#include "executor/job/call_guard.h"
#include "executor/job/fill_drift.h"
#include "executor/job/train_groups.h"
#include "executor/job/train_plan.h"
#include "executor/job/train_tables.h"
#include "executor/job/train_trace.h"
#include "executor/loop/run.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/train_stages.h"
#include "executor/state/checkpoint.h"
#include "executor/sync/ways.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A fetch that is no float32 scalar, of a run that does not train: per sample, [samples, ...] or
/// [k * samples, ...], the global batch in the order of pipelines and rows; or the sum over all
/// micro-batches.
struct NamedTensor {
  std::string name;
  DType dtype = DType::Float32;
  Shape shape;
  bool per_sample = false;
  std::vector<std::byte> bytes;
};

/// What a run does that does not train.
struct ValidateOptions {
  /// Names of what it reports, of which no more is computed than they need; empty: all fetches.
  std::vector<std::string> fetches = {};
  /// Of all pipelines, where the global batch is short: pipelines and micro-batches are filled in
  /// their order, and what is left over does not compute. The same on every worker.
  std::optional<std::int64_t> rows = std::nullopt;
  /// This worker wants to stop: every worker's result then has `stop_asked`.
  bool asks_to_stop = false;
};

/// What one step reports; the same on every worker.
struct StepResult {
  std::int64_t step = 0;  ///< index, from 0
  std::vector<NamedScalar> scalars;
  std::vector<NamedTensor> tensors;
  double gradient_norm = 0;  ///< before clipping; 0 in validation
  double learning_rate = 0;  ///< of this step's update
  bool skipped = false;      ///< of float16: a gradient was not finite, and nobody has updated
  double loss_scale = 1;     ///< of float16: that of the next step
  bool stop_asked = false;   ///< a worker had asked to stop before this step
  bool last = false;         ///< of its run: every update is applied
  /// Batches of all pipelines since the result before. Where pipelines average weights: as far as
  /// this worker has heard of the others.
  std::int64_t batches = 1;
  std::int64_t rows = 0;  ///< of a validation: those that its results are of, of all pipelines

  /// The scalar of that fetch. Throws InvalidArgument naming the fetches there are.
  double at(const std::string& name) const;
};

/// An error in a training step or a validation undoes it: weights, states and step() are as before,
/// and the call may be made again; of a run the rest is given up. Where that is impossible (several
/// workers, servers, asynchronous plans, K-FAC) every later call throws an error that names this
/// first failure. Calls of several threads run one after the other, each of them whole (see
/// lock()). A forked child can't use its parent's trainer: every call there throws InvalidArgument.
class Trainer {
 public:
  /// Every worker of `transport` (pipelines * stages of them, worker = pipeline * stages + stage;
  /// or one per replica, stage by stage; or the stages of one pipeline, see Apart) makes its own
  /// with the same arguments. The transport must outlive it. Throws as make_plan, and
  /// InvalidArgument if the workers of a machine together need more memory than it has.
  Trainer(const Graph& graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
          comm::Transport& transport);
  ~Trainer();

  /// Throws what some worker of such a job would throw while it is made, as far as that needs
  /// neither links nor a coordinator: plans that are not proved or do not fit the workers and the
  /// model, stragglers and averages that do not fit the job, too little memory under the limit.
  /// Keeps nothing. Returns the bytes that the worker with the largest peak needs.
  static std::int64_t check(const Graph& graph, const OptimizerConfig& optimizer,
                            const TrainerOptions& options);

  /// The same, for what the workers of such a job need: those of one pipeline, or of all where each
  /// is cut in its own way.
  static std::vector<WorkerMemory> memories(const Graph& graph, const OptimizerConfig& optimizer,
                                            const TrainerOptions& options);

  /// Keeps other threads out of this trainer while the lock is held. Throws as CallGuard::enter.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const { return guard_->enter(); }

  /// Fields this worker reads; empty for stages in the middle that read none.
  const std::vector<FeedSpec>& fields() const { return plan_.fields; }

  /// One step; `lookup` gives this pipeline's batch. Step numbers go up by one from step(). An
  /// asynchronous plan is filled and drained for it: use begin_run for several steps.
  StepResult train(const FieldLookup& lookup);

  /// Begins a run of `steps` steps; next() gives their results. All workers call both. A plan with
  /// one update per step runs step by step; an asynchronous one is filled once, and drained once
  /// before the last result of the run is given: then every update is applied on every worker, and
  /// one may validate or save.
  void begin_run(std::int64_t steps);
  /// The next step's result, in order; nothing once the run is over. `batches` is called from here,
  /// once per step, where a worker reads fields. In an asynchronous plan only worker 0
  /// has scalars and norm (elsewhere they are NaN). A run that was asked to stop is shorter; its
  /// last result has `stop_asked`. Pipelines that average weights each have a length of their own:
  /// together they apply at least `steps` updates per pipeline, and before the last result of the
  /// run is given all have one state, the mean of theirs, and step() is the step that `steps` more
  /// lead to. The first worker of a pipeline then has that pipeline's results.
  std::optional<StepResult> next(const BatchSource& batches);
  /// True in the worker that has results: worker 0, or the first of each pipeline that averages.
  bool is_reporter() const { return is_asynchronous() ? run_->is_chief() : true; }
  /// Null unless pipelines average weights; so is the next.
  Averager* averager() { return groups_ ? &groups_->averager() : nullptr; }
  Membership* membership() { return groups_ ? &groups_->membership() : nullptr; }
  /// True of a plan with weights by version, no flush at each step.
  bool is_asynchronous() const { return plan_.asynchronous; }
  /// Forward only, dropout off, newest weights, buffers the mean over pipelines; counts and losses
  /// over the whole batch of all pipelines that the transport links. `lookup` is asked for the
  /// bytes of this pipeline's rows, which are fewer where the batch is short.
  StepResult validate(const FieldLookup& lookup, const ValidateOptions& how = {});

  /// What is known of batches to come goes to the device, or is asked of servers, ahead of them.
  void look_ahead(BatchesAhead ahead) { ahead_ = std::move(ahead); }
  /// Of this worker's tables on servers, by name: what it looked up and what went over the line.
  std::vector<std::pair<std::string, ps::CacheCounters>> table_counters() const;

  /// Asks all workers to stop together: the next train() reports it on every one, and a run ends.
  void ask_to_stop();

  std::int64_t step() const { return step_; }
  /// Goes on as if `step` steps had been done; for resuming.
  void set_step(std::int64_t step);

  /// The loss scale of float16; resumed after load(). Throws InvalidArgument: no state of one.
  const LossScale& loss_scale() const { return stages_->loss_scale(); }
  double gradient_scale() const { return stages_->gradient_scale(); }
  void resume_loss_scale(const LossScale::State& state);

  /// Multiplies the rate of later updates; the same on every worker. Throws InvalidArgument.
  void set_rate_factor(double factor);

  /// Before state() is saved: every pipeline goes on from the mean of their buffers (running
  /// statistics), as a job that resumes does. Every worker calls it.
  void settle();
  /// Takes up the state and the step of a checkpoint; every worker calls it. Throws Io as
  /// load_checkpoint.
  void load(const Manifest& manifest);

  /// Without tables on servers, of which nothing lies here; save_parts() has them.
  std::vector<StateTensor> state() const { return stages_->state(); }
  std::vector<StateTensor> gradients() const { return stages_->gradients(); }
  /// Notes, from here on, what kernels make in training steps; nullptr: nothing. See TensorLog.
  void log_tensors(TensorLog* log) { stages_->log_tensors(log); }
  /// Notes the gradient sums, or the weights, as they are.
  void log_state(TensorLog& log, TensorRecord::What what) const;
  /// See TrainStages.
  void on_gradients(std::function<void()> whole) { stages_->on_gradients(std::move(whole)); }
  const Graph& graph() const { return plan_.graph; }
  const Schedule& schedule() const { return plan_.lowered; }
  const TrainerOptions& options() const { return plan_.options; }
  const OptimizerConfig& optimizer() const { return optimizer_; }
  const WorkerMemory& memory() const { return plan_.memory; }
  /// How often a function of a stage was run from its record: of --cuda-graphs.
  std::int64_t repeated() const { return device_->queue().repeated(); }
  /// Most activations that this worker keeps at once: as the plan has it, and as it was so far.
  ActivationPeak planned_peak() const { return plan_.planned_peak(); }
  ActivationPeak measured_peak() const { return stages_->measured_peak(); }
  int pipeline() const { return plan_.pipeline; }
  /// Whether this worker is in the pipeline that logs: the first of those that live.
  bool in_first_pipeline() const {
    return groups_ ? groups_->membership().is_first() : plan_.pipeline == 0;
  }
  /// The lowest model stage of this worker; kNone if it has none.
  int stage() const { return plan_.stage(); }
  /// What this worker writes to checkpoints: its stages of which it has the first copy.
  std::vector<SavePart> save_parts() const;
  /// Gradient sums of the last step, times gradient_scale(), before clipping, of the same stages:
  /// each parameter once in the job.
  std::vector<StateTensor> gradient_parts() const;
  /// Throws InvalidArgument where state and gradients are of no one moment: in the middle of a run
  /// without a flush. `asked` is in the message.
  void check_drained(const char* asked) const;
  /// Calls `look` while buffers are the mean over pipelines; leaves no trace. All workers call it.
  void see_means(const std::function<void()>& look);

  /// Starts or stops recording instructions.
  void record(bool on);
  /// Writes what all workers recorded since record(true), beside what the plan predicts from the
  /// typical ones of those times, as one trace file with the plan and the costs in its metadata.
  /// Every worker calls it; worker 0 writes. Throws Io.
  void write_trace(const std::string& path);

 private:
  void build();
  StepResult result_of(StepReport report) const;
  void begin_asynchronous(int steps);
  std::optional<StepReport> next_report();
  void end_run();
  void check_hosts();
  void feed(const FieldLookup& lookup, bool training);
  // True if this worker's copy of a stage stands for all that its transport links.
  bool speaks_for(const StageHere& here) const {
    return (plan_.pipeline == 0 || plan_.linked == 1) && here.is_first_copy;
  }
  TraceRecorder* recorder() {
    return trace_ ? &trace_->recorder() : drift_ ? &drift_->recorder() : nullptr;
  }
  void see_drift();

  TrainPlan plan_;
  OptimizerConfig optimizer_;  // the plan's, at the rate of now
  comm::Transport& transport_;
  comm::Reducer reducer_;
  std::unique_ptr<StragglerInjector> injector_;   // null: none
  std::unique_ptr<TrainGroups> groups_;           // null unless pipelines average weights
  std::unique_ptr<ps::ParameterClient> servers_;  // null unless weights or tables lie there
  std::unique_ptr<Device> device_;
  std::unique_ptr<DirectLinks> direct_;  // null: messages and sums go by the transport
  std::unique_ptr<TrainStages> stages_;
  std::unique_ptr<ServerTables> tables_;  // null unless it has tables on servers
  BatchesAhead ahead_;
  std::vector<std::unique_ptr<WeightSync>> syncs_;
  Schedule forwards_;  // of validation
  std::unique_ptr<Run> run_, validation_;
  std::int64_t run_left_ = 0;  // steps of the run that are to come; averaged: 1 until its end
  std::unique_ptr<TrainTrace> trace_;  // null: nothing is recorded
  std::unique_ptr<FillDrift> drift_;   // null unless filled work may be placed anew
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
  std::unique_ptr<CallGuard> guard_;
};

/// How many rows the step after `step` has, of all pipelines, as those say who know: every worker
/// calls it.
std::int64_t agree_on_rows(comm::Transport& links, std::int64_t step,
                           std::optional<std::int64_t> mine);

}  // namespace hetu
