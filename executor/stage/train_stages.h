// The stages of a worker in training: what the loop's instructions come to. Driven by the
// interpreter; owns weights, optimizer state and activations.
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
#include "executor/stage/step_undo.h"
#include "executor/state/state_tensor.h"
#include "net/transport/transport.h"

namespace hetu {

/// A named scalar of a step, summed over micro-batches and pipelines.
struct NamedScalar {
  std::string name;
  double value = 0;
};

class TrainStages final : public Stages {
 public:
  /// `plans` are indexed by placement id; null where the placement stands on another worker. Graph,
  /// device and transport must outlive it.
  TrainStages(const Graph& graph, std::vector<std::unique_ptr<StagePlan>> plans,
              const OptimizerConfig& optimizer, const StagesOptions& options, Device& device,
              comm::Transport& transport);
  ~TrainStages() override;

  /// Called when the fields of the next step are needed: must call feed() for each of `fields()`.
  void set_source(std::function<void()> source) { source_ = std::move(source); }
  /// Fills a fed field for one step: micro_batches * micro_batch samples, which must stay until the
  /// source returns.
  struct FeedField {
    int stage = 0;
    const StageFeed* feed = nullptr;
    std::int64_t bytes = 0;  ///< of all micro-batches
  };
  const std::vector<FeedField>& fields() const { return fields_; }
  /// `batch`: the number of the batch that it is of, which may have come ahead; 0: it has not.
  void feed(int field, const void* data, std::uint64_t batch = 0);
  /// By the numbers of fields(); what it is told of is uploaded in each training step of a
  /// synchronous plan, once all else of the step is given to the device.
  FeedsAhead& ahead() { return *ahead_; }
  StepUndo& undo() { return *undo_; }
  /// What runs from here on report that do not train, none: all that is fetched. No more is
  /// computed than that needs, nor by training what leads to nothing that it reports, and no more
  /// is fed.
  void set_fetches(const std::vector<ValueId>& values);
  /// Rows of this pipeline in runs that do not train, 0 or more; until set_training() all of them.
  void set_rows(std::int64_t rows) { context_.rows = rows; }
  std::int64_t rows(std::int64_t whole) const { return context_.rows_of(whole); }
  /// Whether the run reports that fetch of the graph.
  bool reports(std::size_t fetch) const {
    return context_.needs(graph_.values[graph_.fetches[fetch].second].producer);
  }
  /// Whether the run reads it.
  bool reads(const FeedField& field) const;

  /// Where the time of blocks is noted, from here on; nullptr: nowhere.
  void time_blocks(BlockTimes* times) { context_.block_times = times; }
  /// Where the results of kernels are noted, from here on, in training and by whole micro-batches;
  /// nullptr: nowhere.
  void log_tensors(TensorLog* log) { context_.tensor_log = log; }
  /// Called in every training step of a synchronous plan when its gradient sums are whole, before
  /// norm and update.
  void on_gradients(std::function<void()> whole) { gradients_whole_ = std::move(whole); }

  /// The tables on parameter servers of this worker's stages, whose windows stay where they are.
  std::vector<TableWindow> windows() const;
  /// Called in each UPDATE of a stage when its gradients are whole: with the rate that its tables
  /// on servers are to go by.
  void on_tables_update(std::function<void(int stage, double rate)> update) {
    tables_update_ = std::move(update);
  }

  /// Training (dropout on, gradients follow) or validation, for the runs from here on.
  void set_training(bool training) {
    context_.training = training;
    context_.rows = StepContext::kWhole;
  }
  /// Learning rates count at most so many updates of the run that begins; 0: all of them.
  void limit_rates(std::int64_t updates) { run_updates_ = updates; }

  void begin_run(int first_step, bool asks_to_stop) override;
  Event run(const Instr& instr, int step) override;
  void begin_update(int stage, int step) override;
  DeviceSpan newest_weights(int stage) override { return at(stage).memory().newest_weights(); }
  std::vector<DeviceSpan> weights_from(int stage, int version) override {
    return at(stage).memory().weights_from(version);
  }
  EndedGradient take_gradient(int stage) override {
    return std::exchange(ended_.at(static_cast<std::size_t>(stage)), {});
  }
  std::vector<ParameterPlace> parameter_places(int stage) override {
    return places_of(graph_, at(stage), device_);
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

  /// As BufferMeans: validation sees the mean and leaves no trace.
  void average_buffers() { buffers_->average(context_.step); }
  std::vector<float> buffers() const { return buffers_->values(); }
  void set_buffers(const std::vector<float>& values) { buffers_->set(values); }

  /// All weights, optimizer states and buffers of this worker, in model order; buffers last.
  std::vector<StateTensor> state() const;
  /// The same of one placement of this worker.
  std::vector<StateTensor> state(int placement) const {
    return state_of(graph_, *stages_[placement], optimizer_.kind, device_);
  }
  /// Gradient sums of the last step, before clipping, in model order.
  std::vector<StateTensor> gradients() const;
  std::vector<StateTensor> gradients(int placement) const {
    return gradients_of(graph_, *stages_[placement]);
  }
  /// The most that training has kept at once so far; equal to what the plan says.
  ActivationPeak measured_peak() const {
    return {context_.most_halves / (2.0 * options_.plan->chunks), context_.most_bytes};
  }
  /// Updates applied so far; learning rates count them.
  void set_updates(std::int64_t updates) { updates_ = updates; }
  /// Of a plan with one update per step for all pipelines: each step's gradients are this much
  /// larger, and where one is not finite no stage updates.
  void set_loss_scale(const LossScale& scale) { loss_scale_ = scale; }
  const LossScale& loss_scale() const { return loss_scale_; }
  /// How much larger than it is the last step's gradient lies there.
  double gradient_scale() const { return context_.loss_scale; }
  /// Whether the step to come feeds K-FAC's factors.
  void feed_factors(bool feeds) {
    context_.feeds_factors = feeds;
    if (feeds) curvatures_->begin_feeding();
  }
  void set_rate_factor(double factor) { optimizer_.rate.factor = factor; }

 private:
  Stage& at(int placement);
  bool counts_for_all(const Stage& stage) const { return speaks_for_all() && stage.replica() == 0; }
  // What all linked pipelines have alike counts once.
  bool speaks_for_all() const {
    return options_.pipeline == 0 || options_.pipelines == 1 || alone();
  }
  // This pipeline trains by itself: losses, norms and counts are its own.
  bool alone() const {
    const Lowering& how = options_.plan->lowering;
    return (how.average_weights || (how.servers && !in_rounds())) && context_.training;
  }
  // Servers sum the gradients of all pipelines, so that each is one of a mean over all samples.
  bool in_rounds() const {
    return updates_at_servers(*options_.plan) && options_.plan->lowering.staleness == 0;
  }
  int updates_per_step() const { return options_.micro_batches / context_.per_update; }
  // How many means that each stand for one update are added into a step's report.
  int means_per_step() const {
    const bool many = options_.plan->lowering.servers && !in_rounds();
    return updates_per_step() * (many ? options_.pipelines : 1);
  }
  // What makes a gradient of one pipeline as large as that of its own samples alone.
  double share() const { return in_rounds() ? options_.pipelines : 1; }
  void find_means();
  void begin_batch();
  void count(Stage& stage, int first, int micros);
  void connect(Stage& stage);
  void update(Stage& stage);
  void change_weights(Stage& stage, std::int64_t number);
  void end_gradient(Stage& stage, std::int64_t number);
  void reduce_scalars(int step);
  double gradient_squares(const std::vector<double>& values, int step) const;
  std::vector<double> fetch_sums(int step) const;
  FetchTensors tensors() const { return {graph_, options_, context_, stages_}; }
  std::vector<double> step_scalars();
  std::vector<Stage*> here() const;

  const Graph& graph_;
  OptimizerConfig optimizer_;
  StagesOptions options_;
  Device& device_;
  comm::Transport& transport_;
  StepContext context_;
  std::vector<std::unique_ptr<Stage>> stages_;  // by placement id
  std::unique_ptr<Curvatures> curvatures_;
  std::unique_ptr<SharedGradients> shared_;
  std::unique_ptr<BufferMeans> buffers_;
  std::unique_ptr<GradientNorms> norms_;
  std::vector<FeedField> fields_;
  std::function<void()> gradients_whole_;
  std::function<void(int, double)> tables_update_;
  bool asks_to_stop_ = false;
  std::function<void()> source_;
  std::unique_ptr<FeedsAhead> ahead_;
  std::unique_ptr<StepUndo> undo_;
  bool uploads_ = false;  // fields of the batch that is fed did not come ahead
  std::vector<StepReport> reports_;
  std::vector<EndedGradient> ended_;  // by placement, of a plan whose servers make the updates
  int batches_ = 0;                   // steps of the run whose fields are in
  std::optional<std::pair<bool, std::vector<ValueId>>> reported_;  // what context_.nodes is for
  LossScale loss_scale_;
  double factor_ = 1;
  double squares_ = 0;         // of this step's updates so far, of a plan by version
  std::vector<char> is_mean_;  // by fetch: scaled by a count, so that over updates it is a mean
  std::vector<double> tied_factors_;  // by parameter of the graph, of a plan by version
  std::int64_t updates_ = 0;
  std::int64_t run_updates_ = 0;
};

}  // namespace hetu
