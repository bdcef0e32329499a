// The stages of a worker in training, which run the loop's instructions. Driven by the interpreter;
// owns weights, optimizer state and activations.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "executor/compile/plan.h"
#include "executor/compile/row_needs.h"
#include "executor/stage/buffer_means.h"
#include "executor/stage/curvature.h"
#include "executor/stage/feeds_ahead.h"
#include "executor/stage/fetch_tensors.h"
#include "executor/stage/gradient_norms.h"
#include "executor/stage/loss_scale.h"
#include "executor/stage/optimizer.h"
#include "executor/stage/shared_gradients.h"
#include "executor/stage/stage.h"
#include "executor/stage/stage_tensors.h"
#include "executor/stage/stages.h"
#include "executor/stage/stages_options.h"
#include "executor/stage/step_scalars.h"
#include "executor/stage/step_undo.h"
#include "executor/stage/sum_terms.h"
#include "executor/state/state_tensor.h"
#include "net/transport/transport.h"

namespace hetu {

/// A named scalar of a step, summed over micro-batches and pipelines.
struct NamedScalar {
  std::string name;
  double value = 0;
};

/// All stages that a worker trains.
class TrainStages final : public Stages {
 public:
  /// `plans` is indexed by placement id; entries of other workers are null. Graph, device and
  /// transport must outlive the object.
  TrainStages(const Graph& graph, std::vector<std::unique_ptr<StagePlan>> plans,
              const OptimizerConfig& optimizer, const StagesOptions& options, Device& device,
              comm::Transport& transport);
  ~TrainStages() override;

  /// Begins the batch of the run's next step. The caller then feeds each of fields() that the run
  /// reads, and calls end_batch(). Both come before the step's first forward.
  void begin_batch();
  void end_batch();
  /// Returns the number of batches that the run has begun.
  int batches() const { return batches_; }
  /// A field that is fed once per step.
  struct FeedField {
    int stage = 0;
    const StageFeed* feed = nullptr;
    std::int64_t bytes = 0;  ///< of all micro-batches
  };
  /// Returns the fields to feed. A field has micro_batches * micro_batch samples per step.
  const std::vector<FeedField>& fields() const { return fields_; }
  /// Feeds a field for one step; `data` must stay valid until end_batch() returns. `batch` is the
  /// number of the batch, which may have been uploaded ahead; 0: it hasn't.
  void feed(int field, const void* data, std::uint64_t batch = 0);
  /// Returns the device memory of the next batch, with fields numbered as in fields().
  FeedsAhead& ahead() { return *ahead_; }
  /// Returns the object that restores the stages after a failed step.
  StepUndo& undo() { return *undo_; }
  /// Sets the values that the following runs report if they don't train; empty: all fetches. Such a
  /// run computes and feeds only what its reports need. A training run computes what gradients,
  /// buffers and fetched float32 scalars need (needed_in_run).
  void set_fetches(const std::vector<ValueId>& values);
  /// Sets the rows of this pipeline (0 or more) for runs that don't train, until set_training().
  /// Without it all rows of the step are used.
  void set_rows(std::int64_t rows) { context_.rows = rows; }
  std::int64_t rows(std::int64_t whole) const { return context_.rows_of(whole); }
  /// Returns true if the run reports this fetch of the graph.
  bool reports(std::size_t fetch) const {
    return context_.needs(graph_.values[graph_.fetches[fetch].second].producer);
  }
  /// Returns true if the run reads the field.
  bool reads(const FeedField& field) const;

  /// Records times of blocks into `times` from here on; null disables the recording.
  void time_blocks(BlockTimes* times) { context_.block_times = times; }
  /// Records results of kernels into `log` from here on, in training and for whole micro-batches;
  /// null disables the recording.
  void log_tensors(TensorLog* log) { context_.tensor_log = log; }
  /// Sets a function called in every training step of a synchronous plan, when its gradient sums
  /// are complete, before norm and update.
  void on_gradients(std::function<void()> whole) { gradients_whole_ = std::move(whole); }

  /// Returns the windows of this worker's tables on parameter servers. Their addresses don't
  /// change.
  std::vector<TableWindow> windows() const;
  /// Sets a function called in each UPDATE of a stage when its gradients are complete, with the
  /// learning rate for its tables on servers.
  void on_tables_update(std::function<void(int stage, double rate)> update) {
    tables_update_ = std::move(update);
  }

  /// Selects training (with dropout and gradients) or validation for the following runs.
  void set_training(bool training) {
    context_.training = training;
    context_.rows = StepContext::kWhole;
  }
  bool is_training() const { return context_.training; }
  /// Limits the updates of the coming run that learning rates count; 0: no limit.
  void limit_rates(std::int64_t updates) { run_updates_ = updates; }

  void begin_run(int first_step, bool asks_to_stop) override;
  Event run(const Instr& instr, int step) override;
  void queue_scalars() override;
  void begin_update(int stage, int step) override;
  DeviceSpan newest_weights(int stage) override { return at(stage).memory().newest_weights(); }
  std::vector<DeviceSpan> weights_from(int stage, int version) override {
    return at(stage).memory().weights_from(version);
  }
  EndedGradient take_gradient(int stage) override {
    return std::exchange(ended_.at(static_cast<std::size_t>(stage)), {});
  }
  std::vector<ParameterSlice> parameter_slices(int stage) override {
    return slices_of(graph_, at(stage), device_);
  }
  std::vector<DeviceSpan> persistent(int stage, bool with_buffers) override {
    return persistent_of(at(stage), with_buffers, device_);
  }
  std::vector<StepReport> take_reports() override { return std::exchange(reports_, {}); }
  Buffer out_buffer(const Instr& send) override {
    return at(send.stage).messages().out_buffer(send);
  }
  std::optional<Buffer> in_buffer(const Instr& recv) override {
    return at(recv.stage).messages().in_buffer(recv);
  }
  void received(const Instr& recv, std::int64_t /*arrival_ns*/) override {
    at(recv.stage).messages().received(recv);
  }
  void overwrites(const Instr& compute, std::vector<const void*>& addresses) override {
    at(compute.stage).overwrites(compute, addresses);
  }
  std::vector<int> buckets(const Instr& reduce) override;
  Bucket bucket(int stage, int bucket) override;
  std::int64_t synchronised(const Instr& instr, std::int64_t done_ns) override;

  /// As BufferMeans::average(). Validation uses the mean and then restores the buffers.
  void average_buffers() { buffers_->average(context_.step); }
  std::vector<float> buffers() const { return buffers_->values(); }
  void set_buffers(const std::vector<float>& values) { buffers_->set(values); }

  /// Returns all weights, optimizer states and buffers of this worker, in model order; buffers
  /// last.
  std::vector<StateTensor> state() const;
  /// As above, for one placement of this worker.
  std::vector<StateTensor> state(int placement) const {
    return state_of(graph_, *stages_[placement], optimizer_.kind, device_);
  }
  /// Returns the gradient sums of the last step, before clipping, in model order.
  std::vector<StateTensor> gradients() const;
  std::vector<StateTensor> gradients(int placement) const {
    return gradients_of(graph_, *stages_[placement]);
  }
  /// Returns the most activations that training has kept at once so far. Equals the plan's
  /// prediction.
  ActivationPeak measured_peak() const {
    return {context_.most_halves / (2.0 * options_.plan->chunks), context_.most_bytes};
  }
  /// Sets the number of updates applied so far, which learning rates count.
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// Sets the loss scale, for plans with one update per step over all pipelines. Each step's
  /// gradients are multiplied by it, and no stage updates if a gradient isn't finite.
  void set_loss_scale(const LossScale& scale) { loss_scale_ = scale; }
  const LossScale& loss_scale() const { return loss_scale_; }
  /// Returns the factor by which the stored gradient of the last step is larger than the true one.
  double gradient_scale() const { return context_.loss_scale; }
  /// Sets whether the next step feeds K-FAC's factors.
  void feed_factors(bool feeds) {
    context_.feeds_factors = feeds;
    if (feeds) curvatures_->begin_feeding();
  }
  void set_rate_factor(double factor) { optimizer_.rate.factor = factor; }

 private:
  Stage& at(int placement);
  bool counts_for_all(const Stage& stage) const { return speaks_for_all() && stage.replica() == 0; }
  // Returns true if this pipeline contributes the values that all linked pipelines have in common,
  // so that they count once.
  bool speaks_for_all() const {
    return options_.pipeline == 0 || options_.pipelines == 1 || alone();
  }
  // Returns true if this pipeline trains by itself, so that losses, norms and counts are its own.
  bool alone() const {
    const Lowering& how = options_.plan->lowering;
    return (how.averages() || (how.has_servers() && !in_rounds())) && context_.training;
  }
  // Returns true if servers sum the gradients of all pipelines, so that each is a share of a mean
  // over all samples.
  bool in_rounds() const {
    return updates_at_servers(*options_.plan) && options_.plan->lowering.staleness() == 0;
  }
  int updates_per_step() const { return options_.micro_batches / context_.per_update; }
  // Returns the number of means, one per update, that are added into a step's report.
  int means_per_step() const {
    const bool many = options_.plan->lowering.has_servers() && !in_rounds();
    return updates_per_step() * (many ? options_.pipelines : 1);
  }
  // Returns the factor that scales a pipeline's gradient up to that of only its own samples.
  double share() const { return in_rounds() ? options_.pipelines : 1; }
  void count(Stage& stage, int first, int micros);
  std::vector<double> count_of_all(Stage& stage, int first, int micros);
  void connect(Stage& stage);
  void update(Stage& stage);
  void change_weights(Stage& stage, std::int64_t number);
  void end_gradient(Stage& stage, std::int64_t number);
  void reduce_scalars(int step);
  double gradient_squares(const std::vector<double>& values, int step) const;
  std::vector<double> fetched_scalars(int step) const {
    return scalars_.of_step(here(), step, {speaks_for_all(), means_per_step()});
  }
  FetchTensors tensors() const { return {graph_, options_, context_, stages_}; }
  std::vector<double> step_scalars();
  std::vector<Stage*> here() const;

  const Graph& graph_;
  OptimizerConfig optimizer_;
  StagesOptions options_;
  Device& device_;
  comm::Transport& transport_;
  StepContext context_;
  StepScalars scalars_;
  std::vector<std::unique_ptr<Stage>> stages_;  // by placement id
  std::unique_ptr<Curvatures> curvatures_;
  std::unique_ptr<SumTerms> terms_;  // null: sums are not in a tree
  std::unique_ptr<SharedGradients> shared_;
  std::unique_ptr<BufferMeans> buffers_;
  std::unique_ptr<GradientNorms> norms_;
  std::vector<FeedField> fields_;
  std::function<void()> gradients_whole_;
  std::function<void(int, double)> tables_update_;
  bool asks_to_stop_ = false;
  std::unique_ptr<FeedsAhead> ahead_;
  std::unique_ptr<StepUndo> undo_;
  bool uploads_ = false;  // some field of the current batch wasn't uploaded ahead
  std::vector<StepReport> reports_;
  std::vector<EndedGradient> ended_;  // by placement, for plans whose servers make the updates
  int batches_ = 0;                   // steps of the run whose fields have been fed
  // Fetches for which context_.nodes was computed.
  std::optional<std::pair<bool, std::vector<ValueId>>> reported_;
  LossScale loss_scale_;
  double factor_ = 1;
  double squares_ = 0;  // sum over this step's updates so far, for plans with weight versions
  std::vector<double> tied_factors_;  // by parameter of the graph, for plans with weight versions
  std::int64_t updates_ = 0;
  std::int64_t run_updates_ = 0;
};

}  // namespace hetu
