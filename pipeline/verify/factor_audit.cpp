#include "pipeline/verify/factor_audit.h"

#include <algorithm>

#include "graph/base/error.h"

namespace hetu {

FactorAudit::FactorAudit(const PlanIndex& index, const Reductions& reductions)
    : index_(index),
      schedule_(index.schedule()),
      reductions_(reductions),
      stages_(index.graph().stages()) {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    stages_[s].layers.resize(reductions.factor_layers(static_cast<int>(s)));
    if (!stages_[s].layers.empty()) stages_[s].missing.assign(index.forward_micros(), 0);
  }
  for (int p = 0; p < index.size(); ++p) {
    const Instr& i = index.at(p);
    if (is_curvature(i.kind) && !stages_[i.stage].missing.empty())
      ++stages_[i.stage].missing[i.micro];
  }
}

FactorAudit::Layer& FactorAudit::layer_at(int position) {
  const Instr& i = index_.at(position);
  std::vector<Layer>& layers = stages_[i.stage].layers;
  if (i.part >= static_cast<int>(layers.size()))
    fail(Code::Plan, "{} is of layer {}, but {} of stage {} have factors:\n  {}", to_string(i),
         i.part, layers.size(), i.stage, index_.describe(position));
  return layers[i.part];
}

std::string FactorAudit::factor_name(int position, bool inputs) const {
  const Instr& i = index_.at(position);
  return fmt::format("{} factor of layer {}", inputs ? "input" : "gradient", i.part);
}

int FactorAudit::micros_here(int stage, int step) const {
  int count = 0;
  for (int m = step * schedule_.micro_batches; m < (step + 1) * schedule_.micro_batches; ++m)
    count += index_.find({.kind = Kind::Forward, .stage = stage, .micro = m}) >= 0;
  return count;
}

void FactorAudit::forward(int position) {
  const Instr& i = index_.at(position);
  Stage& s = stages_[i.stage];
  if (s.missing.empty() || s.missing[i.micro] == 0) return;
  s.most_kept = std::max(s.most_kept, ++s.kept);
}

void FactorAudit::curvature(int position) {
  const Instr& i = index_.at(position);
  const bool inputs = is_of_inputs(i.kind);
  Factor& f = layer_at(position).of(inputs);
  const Instr source{
      .kind = inputs ? Kind::Forward : Kind::InputGrad, .stage = i.stage, .micro = i.micro};
  if (index_.find(source) < 0)
    fail(Code::Plan, "{} reads a micro-batch that its stage never runs:\n  {}", to_string(i),
         index_.describe(position));
  const int step = i.micro / schedule_.micro_batches;
  if (f.inverted || f.synced)
    fail(Code::Plan, "{} comes after the {} was {}:\n  {}", to_string(i),
         factor_name(position, inputs),
         f.inverted ? "inverted, and before the layer's other one is" : "summed",
         index_.describe(position));
  if (f.step >= 0 && f.step != step)
    fail(Code::Plan, "{} is of step {}, but the {} holds micro-batches of step {}:\n  {}",
         to_string(i), step, factor_name(position, inputs), f.step, index_.describe(position));
  if (const auto [known, fresh] = f.seen.try_emplace(i.micro, position); !fresh)
    fail(Code::Plan, "{} is doubled:\n  {}\n  {}", to_string(i), index_.describe(known->second),
         index_.describe(position));
  f.step = step;
  ++f.pieces;
  f.last = position;
  Stage& s = stages_[i.stage];
  if (--s.missing[i.micro] == 0) --s.kept;
}

void FactorAudit::check_whole(const Layer& layer, bool inputs, int position) const {
  const Instr& i = index_.at(position);
  const Factor& f = layer.of(inputs);
  const int wanted = f.step < 0 ? 1 : micros_here(i.stage, f.step);
  if (f.pieces < wanted)
    fail(Code::Plan, "{} comes before the {} is whole: {} of {} micro-batches are in it:\n  {}",
         to_string(i), factor_name(position, inputs), f.pieces,
         f.step < 0 ? "a step's" : std::to_string(wanted), index_.describe(position));
}

void FactorAudit::sync(int position) {
  const Instr& i = index_.at(position);
  const bool inputs = is_of_inputs(i.kind);
  Layer& layer = layer_at(position);
  Factor& f = layer.of(inputs);
  if (!reductions_.syncs_factors(i.stage))
    fail(Code::Plan, "{} sums over one copy of its stage:\n  {}", to_string(i),
         index_.describe(position));
  check_whole(layer, inputs, position);
  if (f.synced) fail(Code::Plan, "{} is doubled:\n  {}", to_string(i), index_.describe(position));
  f.synced = true;
  // All copies sum the same step.
  const std::int64_t group = reductions_.group(i);
  const auto at = std::find(groups_.begin(), groups_.end(), group) - groups_.begin();
  if (at == static_cast<std::ptrdiff_t>(groups_.size())) {
    groups_.push_back(group);
    summed_steps_.emplace_back();
    times_.emplace_back(index_.workers(), 0);
  }
  const int time = times_[at][index_.worker_of(position)]++;
  std::vector<int>& steps = summed_steps_[at];
  if (time == static_cast<int>(steps.size())) steps.push_back(f.step);
  if (steps[time] != f.step)
    fail(Code::Plan,
         "{} sums micro-batches of step {}, another copy of the stage those of step {}:\n  {}",
         to_string(i), f.step, steps[time], index_.describe(position));
}

void FactorAudit::inversion(int position) {
  const Instr& i = index_.at(position);
  const bool mine = is_of_inputs(i.kind);
  Layer& layer = layer_at(position);
  if (layer.of(mine).inverted)
    fail(Code::Plan, "{} is doubled:\n  {}", to_string(i), index_.describe(position));
  for (const bool inputs : {true, false}) {
    check_whole(layer, inputs, position);
    if (reductions_.syncs_factors(i.stage) && !layer.of(inputs).synced)
      fail(Code::Plan, "{} comes before the {} is summed over the copies of its stage:\n  {}",
           to_string(i), factor_name(position, inputs), index_.describe(position));
  }
  if (layer.a.step != layer.b.step)
    fail(Code::Plan, "{} is of factors of steps {} and {}:\n  {}", to_string(i), layer.a.step,
         layer.b.step, index_.describe(position));
  layer.of(mine).inverted = true;
  if (!layer.of(!mine).inverted) return;
  layer.inverse_of = layer.a.step;
  layer.a = layer.b = {};
}

void FactorAudit::precondition(int position, int updates) {
  const Instr& i = index_.at(position);
  Stage& s = stages_[i.stage];
  if (s.layers.empty())
    fail(Code::Plan, "{}: no layer of stage {} has factors:\n  {}", to_string(i), i.stage,
         index_.describe(position));
  for (std::size_t l = 0; l < s.layers.size(); ++l) {
    const Layer& layer = s.layers[l];
    if (layer.a.inverted || layer.b.inverted)
      fail(Code::Plan, "{} comes between the two inversions of layer {}:\n  {}", to_string(i), l,
           index_.describe(position));
    if (layer.inverse_of >= 0) s.oldest = std::max(s.oldest, updates - layer.inverse_of);
  }
}

void FactorAudit::finish(VerifyReport& report) const {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    report.stages[s].tap_copies = stage.most_kept;
    report.oldest_inverse = std::max(report.oldest_inverse, stage.oldest);
    for (const Layer& layer : stage.layers) {
      for (const bool inputs : {true, false}) {
        const Factor& f = layer.of(inputs);
        if (f.pieces > 0)
          fail(Code::Plan, "curvature is never inverted:\n  {} has no {}INVERT_{}:{} after it",
               index_.describe(f.last), s, inputs ? "A" : "B", index_.at(f.last).part);
      }
    }
  }
}

}  // namespace hetu
