// The end of a training step: its scalars and gradient norm, the update, and the state after it.
#include <cmath>

#include "executor/train_runner.h"
#include "graph/base/error.h"

namespace hetu {

comm::Group TrainRunner::all_workers() const {
  comm::Group all(static_cast<std::size_t>(options_.pipelines) * options_.workers_per_pipeline);
  for (std::size_t w = 0; w < all.size(); ++w) all[w] = static_cast<int>(w);
  return all;
}

std::vector<double> TrainRunner::step_scalars() {
  const std::size_t fetches = graph_.fetches.size();
  std::vector<double> values(fetches + (training_ ? graph_.parameters.size() : 0), 0);
  for (Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (std::size_t f = 0; f < stage.plan->fetches.size(); ++f) {
      const StageFetch& fetch = stage.plan->fetches[f];
      std::size_t at = 0;
      while (graph_.fetches[at].first != fetch.name) ++at;
      if (graph_.producer(fetch.value).op == "step_sum") {  // already the sum of the step
        values[at] = options_.pipeline == 0 ? stage.fetched[f][0] : 0;
        continue;
      }
      for (int m = 0; m < options_.micro_batches; ++m) values[at] += stage.fetched[f][m];
    }
    if (!training_ || options_.pipeline != 0) continue;
    for (const StageParameter& p : stage.plan->parameters) {
      if (!p.owner) continue;
      values[fetches + p.parameter] =
          sum_of_squares(stage.memory->floats(stage.plan->uses[p.uses[0]].accumulator), p.elements);
    }
  }
  return values;
}

void TrainRunner::reduce_scalars(comm::Transport& transport, int step) {
  std::vector<double> values = step_scalars();
  if (training_) values.push_back(asks_to_stop_ ? 1 : 0);
  const comm::Group all = all_workers();
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

void TrainRunner::update(int placement, int /*step*/) {
  Stage& stage = at(placement);
  for (const StageParameter& p : stage.plan->parameters) {
    ParameterSpan span;
    span.weight = stage.memory->floats(p.weight);
    span.gradient = stage.memory->floats(stage.plan->uses[p.uses[0]].accumulator);
    for (std::size_t s = 0; s < p.state.size(); ++s)
      span.state[s] = stage.memory->floats(p.state[s]);
    span.elements = p.elements;
    span.decay = graph_.parameters[p.parameter].decay;
    apply_update(optimizer_, span, factor_, updates_);
  }
}

std::vector<StateTensor> TrainRunner::state() const {
  std::vector<StateTensor> out;
  for (const Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (const StageParameter& p : stage.plan->parameters) {
      const Parameter& parameter = graph_.parameters[p.parameter];
      const Shape& shape = graph_.values[parameter.value].type.shape;
      out.push_back(
          {parameter.name, "", shape, stage.memory->floats(p.weight), p.elements, p.owner});
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
  }
  return out;
}

std::vector<StateTensor> TrainRunner::gradients() const {
  std::vector<StateTensor> out;
  for (const Stage& stage : stages_) {
    if (!stage.plan) continue;
    for (const StageParameter& p : stage.plan->parameters) {
      const Parameter& parameter = graph_.parameters[p.parameter];
      const Loc& sum = stage.plan->uses[p.uses[0]].accumulator;
      out.push_back({parameter.name, "gradient", graph_.values[parameter.value].type.shape,
                     stage.memory->floats(sum), p.elements, p.owner});
    }
  }
  return out;
}

}  // namespace hetu
