// A training job: one object per worker, which makes its plan (job_plan.h) and runs it step by
// step. Used by Python's Executor and by C++ programs.
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
#include "executor/feed/feeds.h"
#include "executor/job/call_guard.h"
#include "executor/job/fill_drift.h"
#include "executor/job/job_groups.h"
#include "executor/job/job_plan.h"
#include "executor/job/job_tables.h"
#include "executor/job/job_trace.h"
#include "executor/job/step_result.h"
#include "executor/loop/run.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/train_stages.h"
#include "executor/state/checkpoint.h"
#include "executor/sync/strategies.h"
#include "net/transport/transport.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Makes the plan of one worker and runs it.
///
/// A transport links pipelines * stages workers, where worker = pipeline * stages + stage; or one
/// worker per replica, stage by stage; or the stages of one pipeline (see Apart).
///
/// Pipelines that average weights each run their own number of steps. Together they apply at least
/// `steps` updates per pipeline of a run. Before the last result of the run is returned, all of
/// them take the mean of their states, and step() becomes the step that `steps` more lead to. The
/// first worker of each pipeline has that pipeline's results.
///
/// An error in a training step or a validation is undone: weights, states and step() are as before,
/// and the call may be repeated. The rest of a run is cancelled. Where undoing is impossible
/// (several workers, servers, asynchronous plans, K-FAC), every later call throws an error that
/// names this first failure.
///
/// Concurrent calls of several threads run one after the other, each of them whole (see lock()). A
/// forked child can't use its parent's job: every call there throws InvalidArgument.
class Job {
 public:
  /// Collective: every worker of `transport` constructs its own job with the same arguments.
  /// The transport must outlive it. Throws as make_plan, and InvalidArgument if the workers of a
  /// machine together need more memory than it has.
  Job(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
      comm::Transport& transport);
  ~Job();

  /// Locks out other threads while the lock is held. Throws as CallGuard::enter.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock() const { return guard_->enter(); }

  /// Returns this worker's plan: the graph after passes, the proved schedule, options with all cuts
  /// filled in, fields that this worker reads, its place in the grid and its memory.
  const JobPlan& plan() const { return plan_; }
  /// Returns the graph that the job was constructed with, before passes.
  const Graph& given_graph() const { return given_; }
  const OptimizerConfig& optimizer() const { return optimizer_; }
  comm::Transport& transport() const { return transport_; }

  /// Runs one step on this pipeline's batch: the one given, or the next of a sequence (null: this
  /// worker reads no field). Step numbers count up from step(). An asynchronous plan is filled and
  /// drained for this single step: use begin_run for several steps. If an error is undone, the
  /// sequence goes back, and the next call reads the same batch. Throws InvalidArgument if a field
  /// of the sequence has another dtype or row shape than the model's placeholder.
  StepResult train(const Batch& batch);
  StepResult train(BatchStream* batches);

  /// Begins a run of `steps` steps, whose results next() returns. All workers call both functions.
  /// A plan with one update per step runs step by step. An asynchronous plan is filled once, and
  /// drained once before the last result of the run is returned. After that result every update is
  /// applied on every worker, and validating and saving are allowed.
  void begin_run(std::int64_t steps);
  /// Returns the next step's result, in order; nullopt once the run is over. Workers that read
  /// fields take one batch per step from `batches`, which other workers don't use. In an
  /// asynchronous plan only worker 0 has scalars and norm (elsewhere they are NaN). A run that was
  /// asked to stop is shorter, and its last result has `stop_asked`.
  std::optional<StepResult> next(BatchStream* batches);
  /// Returns true in a worker with results: worker 0, or each averaging pipeline's first worker.
  bool is_reporter() const { return plan_.asynchronous ? run_->is_chief() : true; }
  /// Returns null unless pipelines average weights; so does membership().
  Averager* averager() { return groups_ ? &groups_->averager() : nullptr; }
  Membership* membership() { return groups_ ? &groups_->membership() : nullptr; }
  /// Runs a forward pass with dropout off, newest weights, and buffers averaged over pipelines.
  /// Counts and losses cover the batches of all pipelines that the transport links. `batch` holds
  /// this pipeline's rows, which are fewer if the global batch is short.
  StepResult validate(const Batch& batch, const ValidateOptions& how = {});
  StepResult validate(BatchStream* batches, const ValidateOptions& how = {});
  /// As above, for a sequence that gives every row once; sets how.rows. Returns nullopt after the
  /// last row.
  std::optional<StepResult> validate_rows(BatchStream* batches, ValidateOptions how = {});

  /// Returns the counters of this worker's tables on servers, by name: lookups and network traffic.
  std::vector<std::pair<std::string, ps::CacheCounters>> table_counters() const;

  /// Asks all workers to stop together. The next train() reports it everywhere; a run ends.
  void ask_to_stop();

  std::int64_t step() const { return step_; }
  /// Continues as if `step` steps had been done; for resuming.
  void set_step(std::int64_t step);

  /// Returns the loss scale of float16. Call resume_loss_scale() after load(). It throws
  /// InvalidArgument for an invalid state.
  const LossScale& loss_scale() const { return stages_->loss_scale(); }
  double gradient_scale() const { return stages_->gradient_scale(); }
  void resume_loss_scale(const LossScale::State& state);

  /// Makes `other` take the same loads and changes of step, learning rate, loss scale and weights;
  /// null ends this. Used where a single process does the same steps. `other` must outlive its use.
  void set_twin(Job* other) { twin_ = other; }
  Job* twin() const { return twin_; }

  /// Multiplies the rate of later updates, the same on every worker. Throws InvalidArgument.
  void set_rate_factor(double factor);

  /// Prepares state() for saving: every pipeline continues from the mean of their buffers (running
  /// statistics), as a resumed job does. Every worker calls it.
  void settle();
  /// Loads state and step of a checkpoint. Every worker calls it. Throws Io as load_checkpoint.
  void load(const Manifest& manifest);

  /// Returns this worker's state, without tables on servers, which save_parts() includes.
  std::vector<StateTensor> state() const { return stages_->state(); }
  std::vector<StateTensor> gradients() const { return stages_->gradients(); }
  /// Logs the results of kernels in training steps; nullptr ends logging. See TensorLog.
  void log_tensors(TensorLog* log) { stages_->log_tensors(log); }
  /// Logs the current gradient sums or weights.
  void log_state(TensorLog& log, TensorRecord::Content what) const;
  /// Sets a function that is called when gradient sums are complete. See TrainStages::on_gradients.
  void on_gradients(std::function<void()> whole) { stages_->on_gradients(std::move(whole)); }
  /// Returns how often a function of a stage was replayed from a recording (--cuda-graphs).
  std::int64_t repeated() const { return device_->queue().repeated(); }
  /// Returns the most activations that training has kept at once so far. See JobPlan::planned_peak.
  ActivationPeak measured_peak() const { return stages_->measured_peak(); }
  /// Returns true if this worker is in the pipeline that logs: the first living one.
  bool in_first_pipeline() const {
    return groups_ ? groups_->membership().is_first() : plan_.pipeline == 0;
  }
  /// Returns this worker's parts of a checkpoint: the stages of which it has the first copy.
  std::vector<SavePart> save_parts() const;
  /// Returns the gradient sums of the last step for the same stages, before clipping and multiplied
  /// by gradient_scale(). Each parameter occurs once in the job.
  std::vector<StateTensor> gradient_parts() const;
  /// Throws InvalidArgument if state and gradients do not belong to the same step: in the middle of
  /// a run without a flush. `asked` names the request in the message.
  void check_drained(const char* asked) const;
  /// Calls `work` while buffers hold the mean over pipelines; restores them. All workers call it.
  void with_mean_buffers(const std::function<void()>& work);

  /// Starts or stops the recording of instructions.
  void record(bool on);
  /// Writes what all workers recorded since record(true), together with the plan's prediction from
  /// the typical ones of the measured times. The result is one trace file with the plan and the
  /// costs in its metadata. Every worker calls it; worker 0 writes. Throws Io.
  void write_trace(const std::string& path);

 private:
  void build();
  StepResult result_of(StepReport report) const;
  void begin_asynchronous(int steps);
  std::optional<StepReport> next_report();
  void end_run();
  void check_hosts();
  StepResult next_of(const Feeds::Reading& reading);
  template <class Work>
  auto reading(BatchStream* batches, const Work& work);
  // Returns true if this worker's copy of a stage represents all copies that its transport links.
  bool speaks_for(const StageHere& here) const {
    return (plan_.pipeline == 0 || plan_.linked == 1) && here.is_first_copy;
  }
  TraceRecorder* recorder() {
    return trace_ ? &trace_->recorder() : drift_ ? &drift_->recorder() : nullptr;
  }
  void check_drift();

  const Graph given_;
  JobPlan plan_;
  OptimizerConfig optimizer_;  // the plan's, with the current rate factor
  comm::Transport& transport_;
  comm::Reducer reducer_;
  std::unique_ptr<StragglerInjector> injector_;   // null: no stragglers
  std::unique_ptr<JobGroups> groups_;             // null unless pipelines average weights
  std::unique_ptr<ps::ParameterClient> servers_;  // null unless weights or tables lie on servers
  std::unique_ptr<Device> device_;
  std::unique_ptr<DirectLinks> direct_;  // null: messages and sums go through the transport
  std::unique_ptr<TrainStages> stages_;
  std::unique_ptr<ServerTables> tables_;  // null unless this worker has tables on servers
  std::unique_ptr<Feeds> feeds_;
  Batch validated_;  // the batch of a validation that reads from a sequence
  std::vector<std::unique_ptr<WeightSync>> syncs_;
  Schedule forwards_;  // plan of a validation step
  std::unique_ptr<Run> run_, validation_;
  std::int64_t run_left_ = 0;         // remaining steps of the run; while pipelines average: 1
  std::unique_ptr<JobTrace> trace_;   // null while nothing is recorded
  std::unique_ptr<FillDrift> drift_;  // null unless filled work may be placed again
  std::int64_t origin_ns_ = 0;
  std::int64_t step_ = 0;
  std::unique_ptr<CallGuard> guard_;
  Job* twin_ = nullptr;
};

}  // namespace hetu
