// The end of a training step: scalars, gradient norm and update; the state after it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "executor/stage/stage_sweep.h"
#include "executor/stage/train_stages.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

void TrainStages::queue_scalars() {
  if (!context_.training) return;
  shared_->join_all();
  if (gradients_whole_) gradients_whole_();  // the sums that the optimizer uses
  for (const Stage* stage : here())
    if (counts_for_all(*stage)) norms_->begin(*stage);
}

// Returns what this worker adds to the step's scalars. It waits for the device once, because the
// device idles while the host waits.
std::vector<double> TrainStages::step_scalars() {
  device_.queue().record().wait();
  std::vector<double> values = fetched_scalars(0);
  const std::size_t fetches = values.size();
  if (!context_.training) {
    const std::vector<double> sums = tensors().own_sums();
    values.insert(values.end(), sums.begin(), sums.end());
    return values;
  }
  values.resize(fetches + graph_.parameters.size(), 0);
  for (const Stage* stage : here()) {
    if (!counts_for_all(*stage)) continue;
    const std::vector<double>& squares = norms_->squares_of(*stage);
    for (std::size_t p = 0; p < squares.size(); ++p) {
      const StageParameter& parameter = stage->plan().parameters[p];
      if (parameter.owner) values[fetches + parameter.parameter] = squares[p];
    }
  }
  return values;
}

// Returns the squared norm over all parameters, without the loss scale. With a scale of 1, a
// gradient that isn't finite ends the job, since no smaller scale helps.
double TrainStages::gradient_squares(const std::vector<double>& values, int step) const {
  const double scale = loss_scale_.scale();
  double sum = 0;
  for (std::size_t p = 0; p < graph_.parameters.size(); ++p)
    sum += scale > 1 ? values[p] / (scale * scale)
                     : norms_->checked(values[p], static_cast<int>(p), step);
  return std::isfinite(sum) ? sum : std::numeric_limits<double>::infinity();
}

void TrainStages::reduce_scalars(int step) {
  const bool training = context_.training;
  std::vector<double> values = step_scalars();
  values.push_back(asks_to_stop_ ? 1 : 0);
  const comm::Group all = comm::everyone(transport_);
  if (all.size() > 1) {
    const auto what = [&] { return fmt::format("the loss and norms of step {}", step); };
    comm::sum_f64(transport_, all, values.data(), values.size(),
                  {comm::make_tag(kScalarTag, 0, 0, 0, step), what});
  }
  const auto fetches = static_cast<std::ptrdiff_t>(scalars_.count());
  StepReport report{step, {}, 0};
  report.stop_asked = values.back() > 0;
  values.pop_back();
  report.fetches = scalars_.sums(values);
  if (!training)
    report.tensors = tensors().gather({values.begin() + fetches, values.end()}, transport_, step);
  if (training) {
    buffers_->end_step(step);
    report.squares = gradient_squares({values.begin() + fetches, values.end()}, step);
    factor_ = clip_factor(optimizer_, std::sqrt(report.squares)) / loss_scale_.scale();
    undo_->begin_update();
    loss_scale_.ended(std::isfinite(report.squares));
    if (!loss_scale_.skips()) ++updates_;
  }
  reports_.push_back(std::move(report));
}

// Prepares an update of a plan with weight versions, from what the stage knows without messages.
// The stage's gradient is clipped by its own norm. A tied parameter is clipped by its own, so that
// both holders do the same. Then the successor of the newest version is created and the step
// reported.
void TrainStages::begin_update(int placement, int step) {
  if (!options_.by_version) return;
  Stage& stage = at(placement);
  norms_->begin(stage);
  device_.queue().record().wait();
  const std::vector<double>& all = norms_->squares_of(stage);
  double squares = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const StageParameter& p = stage.plan().parameters[i];
    const double square = norms_->checked(all[i], p.parameter, step);
    if (p.tied_pair == kNone)
      squares += square;
    else
      tied_factors_[p.parameter] = clip_factor(optimizer_, std::sqrt(square));
    if (p.owner && (counts_for_all(stage) || in_rounds())) squares_ += square * share();
  }
  factor_ = clip_factor(optimizer_, std::sqrt(squares) * share());
  if ((stage.updates() + 1) % updates_per_step() == 0) {
    const int of_run = stage.updates() / updates_per_step();
    reports_.push_back({step, scalars_.sums(fetched_scalars(of_run)),
                        std::exchange(squares_, 0) / means_per_step()});
  }
  stage.begin_update();
}

// Reads the gradient here, because the next backward may start before it is pushed.
void TrainStages::end_gradient(Stage& stage, std::int64_t number) {
  EndedGradient& ended = ended_.at(static_cast<std::size_t>(stage.placement()));
  ended.rate = optimizer_.rate.at(number);
  ended.values.assign(static_cast<std::size_t>(stage.memory().newest_weights().elements), 0);
  const std::vector<ParameterSlice> slices = parameter_slices(stage.placement());
  for (std::size_t p = 0; p < slices.size(); ++p) {
    if (stage.plan().parameters[p].uses.empty()) continue;
    device_.queue().download(ended.values.data() + slices[p].begin,
                             stage.gradients().sum_of(static_cast<int>(p)), slices[p].elements * 4);
  }
  device_.queue().record().wait();
  if (factor_ != 1)
    cpu_tensor_kernels().scale(ended.values.data(), static_cast<float>(factor_),
                               static_cast<std::int64_t>(ended.values.size()));
}

void TrainStages::update(Stage& stage) {
  if (loss_scale_.skips()) return;
  const int per_step = updates_per_step();
  std::int64_t number = updates_;  // number of the step's update, from 1
  if (options_.by_version) number += (stage.updates() + per_step - 1) / per_step;
  if (run_updates_ > 0) number = std::min(number, updates_ + run_updates_);
  if (updates_at_servers(*options_.plan))
    end_gradient(stage, number);
  else
    change_weights(stage, number);
  if (tables_update_) tables_update_(stage.placement(), optimizer_.rate.at(number));
  if (options_.by_version) stage.begin_sums();
}

void TrainStages::change_weights(Stage& stage, std::int64_t number) {
  const int per_step = updates_per_step();
  // Counts this stage's updates from 1, even where learning rates no longer advance.
  const std::int64_t counted =
      options_.by_version ? updates_ * per_step + stage.updates() : updates_;
  sweep_stage(graph_, stage, optimizer_, device_, [&](const StageParameter& p) {
    const bool by_itself = options_.by_version && p.tied_pair != kNone;
    SweepCall call =
        sweep_call(optimizer_, by_itself ? tied_factors_[p.parameter] : factor_, number);
    if (per_step > 1) call.update = counted;
    if (stage.plan().state_dtype != DType::Float32)
      round_states(call, options_.seed, graph_.parameters[p.parameter].name, counted);
    return call;
  });
}

std::vector<StateTensor> TrainStages::state() const {
  std::vector<StateTensor> out;
  for (const Stage* stage : here())
    for (StateTensor& t : state(stage->placement())) out.push_back(std::move(t));
  return out;
}

std::vector<TableWindow> TrainStages::windows() const {
  std::vector<TableWindow> out;
  for (const Stage* stage : here())
    for (const TableWindow& window : windows_of(*stage, device_)) out.push_back(window);
  return out;
}

std::vector<StateTensor> TrainStages::gradients() const {
  std::vector<StateTensor> out;
  for (const Stage* stage : here())
    for (StateTensor& t : gradients(stage->placement())) out.push_back(std::move(t));
  return out;
}

}  // namespace hetu
