// The end of a training step: its scalars and gradient norm, the update, and the state after it.
#include <cmath>

#include "executor/stage/train_runner.h"
#include "graph/base/error.h"

namespace hetu {

// Fetched scalars of one step of the run, summed over this worker's micro-batches.
std::vector<double> TrainRunner::fetch_sums(int step) const {
  std::vector<double> values(graph_.fetches.size(), 0);
  const int first = step * options_.micro_batches;
  for (const Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (std::size_t f = 0; f < stage.plan->fetches.size(); ++f) {
      const StageFetch& fetch = stage.plan->fetches[f];
      std::size_t at = 0;
      while (graph_.fetches[at].first != fetch.name) ++at;
      if (graph_.producer(fetch.value).op == "step_sum") {  // already the sum of the step
        if (speaks_for_all() && runs_here(stage, first))
          values[at] += stage.fetched[f][cell(first)];
        continue;
      }
      for (int m = 0; m < options_.micro_batches; ++m)
        values[at] += stage.fetched[f][cell(first + m)];
    }
  }
  return values;
}

std::vector<double> TrainRunner::step_scalars() {
  const std::size_t fetches = graph_.fetches.size();
  std::vector<double> values = fetch_sums(0);
  if (!training_) return values;
  values.resize(fetches + graph_.parameters.size(), 0);
  for (const Stage& stage : stages_) {
    if (!stage.plan || !counts_for_all(stage)) continue;
    for (const StageParameter& p : stage.plan->parameters) {
      if (p.owner) values[fetches + p.parameter] = squares_of(stage, p);
    }
  }
  return values;
}

double TrainRunner::squares_of(const Stage& stage, const StageParameter& p) const {
  return sum_of_squares(stage.memory->floats(stage.plan->uses[p.uses[0]].accumulator), p.elements);
}

void TrainRunner::reduce_scalars(comm::Transport& transport, int step) {
  if (training_) join_all();
  if (training_ && gradients_whole_) gradients_whole_();
  std::vector<double> values = step_scalars();
  if (training_) values.push_back(asks_to_stop_ ? 1 : 0);
  const comm::Group all = comm::everyone(transport);
  if (all.size() > 1) {
    const auto what = [&] { return fmt::format("loss and norms of step {}", step); };
    comm::sum_f64(transport, all, values.data(), values.size(),
                  {comm::make_tag(kScalarTag, 0, 0, 0, step), what});
  }
  scalars_.clear();
  const std::size_t fetches = graph_.fetches.size();
  for (std::size_t f = 0; f < fetches; ++f)
    scalars_.push_back({graph_.fetches[f].first, values[f]});
  if (!training_) return;
  stop_asked_ = values.back() > 0;
  double squares = 0;
  for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
    const double square = values[fetches + p];
    if (!std::isfinite(square)) {
      fail(Code::InvalidArgument,
           "the norm of the gradient of '{}' is {} at step {}; lower the learning rate or clip "
           "gradients",
           graph_.parameters[p].name, std::sqrt(square), step);
    }
    squares += square;
  }
  norm_ = std::sqrt(squares);
  factor_ = clip_factor(optimizer_, norm_);
  ++updates_;
}

void TrainRunner::update(int placement, int step) {
  Stage& stage = at(placement);
  std::unique_lock<std::mutex> change;
  if (options_.averager) change = options_.averager->change();
  if (options_.repeated) clip_alone(stage, step);
  if (options_.averager) options_.averager->bring_into(stage.memory->newest_weights());
  std::int64_t number = options_.repeated ? updates_ + stage.updates : updates_;
  if (run_updates_ > 0) number = std::min(number, updates_ + run_updates_);
  for (const StageParameter& p : stage.plan->parameters) {
    ParameterSpan span;
    span.weight = stage.memory->newest(p.weight);
    span.gradient = stage.memory->floats(stage.plan->uses[p.uses[0]].accumulator);
    for (std::size_t s = 0; s < p.state.size(); ++s)
      span.state[s] = stage.memory->floats(p.state[s]);
    span.elements = p.elements;
    span.decay = graph_.parameters[p.parameter].decay;
    apply_update(optimizer_, span, p.tied_pair == kNone ? factor_ : tied_factor(stage, p), number);
  }
  if (options_.repeated) begin_sums(stage);
}

// An update of a plan whose stages are updated one by one: what the stage knows without asking
// anyone. It is clipped by the norm of its own gradient, and a tied parameter by its own, so that
// both its holders do the same. The successor of the newest version is made, and the step reported.
void TrainRunner::clip_alone(Stage& stage, int step) {
  StepReport report{step, fetch_sums(stage.updates), 0};
  double squares = 0;
  for (const StageParameter& p : stage.plan->parameters) {
    const double square = squares_of(stage, p);
    if (!std::isfinite(square)) {
      fail(Code::InvalidArgument,
           "the norm of the gradient of '{}' is {} at step {}; lower the learning rate or clip "
           "gradients",
           graph_.parameters[p.parameter].name, std::sqrt(square), step);
    }
    if (p.tied_pair == kNone) squares += square;
    if (p.owner && counts_for_all(stage)) report.squares += square;
  }
  factor_ = clip_factor(optimizer_, std::sqrt(squares));
  reports_.push_back(std::move(report));
  ++stage.updates;
  const int wanted = forward_version(*options_.plan, stage.forwards, stage.updates);
  stage.memory->advance_weights(std::min(wanted, stage.updates));
}

double TrainRunner::tied_factor(const Stage& stage, const StageParameter& p) const {
  if (!options_.repeated) return factor_;
  return clip_factor(optimizer_, std::sqrt(squares_of(stage, p)));
}

std::vector<StateTensor> TrainRunner::state(int placement) const {
  std::vector<StateTensor> out;
  const Stage& stage = stages_[placement];
  for (const StageParameter& p : stage.plan->parameters) {
    const Parameter& parameter = graph_.parameters[p.parameter];
    const Shape& shape = graph_.values[parameter.value].type.shape;
    out.push_back({parameter.name, "", shape, stage.memory->newest(p.weight), p.elements, p.owner});
    for (std::size_t s = 0; s < p.state.size(); ++s) {
      out.push_back({parameter.name, optimizer_state_name(optimizer_.kind, static_cast<int>(s)),
                     shape, stage.memory->floats(p.state[s]), p.elements, p.owner});
    }
  }
  for (const StageBuffer& b : stage.plan->buffers) {
    const StateBuffer& buffer = graph_.buffers[b.buffer];
    out.push_back({buffer.name, "", graph_.values[buffer.value].type.shape,
                   stage.memory->floats(b.value), b.elements, true});
  }
  return out;
}

std::vector<StateTensor> TrainRunner::state() const {
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (!stages_[i].plan) continue;
    for (StateTensor& t : state(static_cast<int>(i))) out.push_back(std::move(t));
  }
  return out;
}

std::vector<StateTensor> TrainRunner::gradients(int placement) const {
  std::vector<StateTensor> out;
  const Stage& stage = stages_[placement];
  for (const StageParameter& p : stage.plan->parameters) {
    const Parameter& parameter = graph_.parameters[p.parameter];
    const Loc& sum = stage.plan->uses[p.uses[0]].accumulator;
    out.push_back({parameter.name, "gradient", graph_.values[parameter.value].type.shape,
                   stage.memory->floats(sum), p.elements, p.owner});
  }
  return out;
}

std::vector<StateTensor> TrainRunner::gradients() const {
  std::vector<StateTensor> out;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (!stages_[i].plan) continue;
    for (StateTensor& t : gradients(static_cast<int>(i))) out.push_back(std::move(t));
  }
  return out;
}

}  // namespace hetu
