// Follows each factor of K-FAC through its cycle: empty, partly filled by CURVATURE, complete,
// summed over the copies of its stage (SYNC), inverted (INVERT), gathered if the copies share the
// inversions (GATHER), and empty again. A row with wrapped work inverts factors of the previous
// cycle first. The pass therefore runs twice for such plans (repeat()), with the state of the
// factors carried over.
#include "pipeline/verify/factor_audit.h"

#include <algorithm>

#include "base/error.h"

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

int FactorAudit::Agreement::other(std::int64_t key, int worker, int value) {
  const int time = times_[{key, worker}]++;
  std::vector<int>& values = values_[key];
  if (time == static_cast<int>(values.size())) values.push_back(value);
  return values[time];
}

FactorAudit::Layer& FactorAudit::layer_of(int position, int layer) {
  const Instr& i = index_.at(position);
  std::vector<Layer>& layers = stages_[i.stage].layers;
  if (layer >= static_cast<int>(layers.size()))
    fail(Code::Plan, "{0} is for layer {1}, but stage {3} has {2} layer(s) with factors:\n  {4}",
         to_string(i), layer, layers.size(), i.stage, index_.describe(position));
  return layers[layer];
}

FactorAudit::Layer& FactorAudit::layer_at(int position) {
  return layer_of(position, index_.at(position).part);
}

// Returns the layers that an inversion handles, over all pipelines. All pipelines run the same
// rows. If the copies of the stage share the inversions, each pipeline inverts another layer.
std::vector<int> FactorAudit::inverted_layers(int position) const {
  const Instr& i = index_.at(position);
  std::vector<int> layers;
  for (int d = 0; d < schedule_.lowering.pipelines; ++d) {
    const int layer = reductions_.inverted_layer(i, d);
    // all pipelines invert the same layer, or this copy has no further layer
    if (layer < 0 || (!layers.empty() && layers.back() == layer)) break;
    layers.push_back(layer);
  }
  return layers;
}

std::string FactorAudit::factor_name(int layer, bool inputs) {
  return fmt::format("{} factor of layer {}", inputs ? "input" : "gradient", layer);
}

int FactorAudit::micros_here(int stage, int step) const {
  int count = 0;
  step %= schedule_.steps;
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
  const int step = steps_before_ + i.micro / schedule_.micro_batches;
  if (f.inverted || f.synced)
    fail(Code::Plan, "{} comes after the {} was {}:\n  {}", to_string(i),
         factor_name(i.part, inputs),
         f.inverted ? "inverted, but before the layer's other factor is" : "summed",
         index_.describe(position));
  if (f.step >= 0 && f.step != step)
    fail(Code::Plan, "{} belongs to step {}, but the {} holds micro-batches of step {}:\n  {}",
         to_string(i), step, factor_name(i.part, inputs), f.step, index_.describe(position));
  if (const auto [known, fresh] = f.seen.try_emplace(i.micro, position); !fresh)
    fail(Code::Plan, "{} occurs twice:\n  {}\n  {}", to_string(i), index_.describe(known->second),
         index_.describe(position));
  f.step = step;
  ++f.pieces;
  f.last = position;
  if (steps_before_ > 0) return;
  Stage& s = stages_[i.stage];
  if (--s.missing[i.micro] == 0) --s.kept;
}

void FactorAudit::check_whole(const Layer& layer, int number, bool inputs, int position) const {
  const Instr& i = index_.at(position);
  const Factor& f = layer.of(inputs);
  const int wanted = f.step < 0 ? 1 : micros_here(i.stage, f.step);
  if (f.pieces < wanted)
    fail(Code::Plan, "{} comes before the {} is complete: it has {} of {} micro-batches:\n  {}",
         to_string(i), factor_name(number, inputs), f.pieces,
         f.step < 0 ? "a step's" : std::to_string(wanted), index_.describe(position));
}

void FactorAudit::sync(int position) {
  const Instr& i = index_.at(position);
  const bool inputs = is_of_inputs(i.kind);
  Layer& layer = layer_at(position);
  Factor& f = layer.of(inputs);
  if (!reductions_.syncs_factors(i.stage))
    fail(Code::Plan, "{} is not needed, because its stage has only one copy:\n  {}", to_string(i),
         index_.describe(position));
  check_whole(layer, i.part, inputs, position);
  if (f.synced) fail(Code::Plan, "{} occurs twice:\n  {}", to_string(i), index_.describe(position));
  f.synced = true;
  const int other = summed_.other(reductions_.group(i), index_.worker_of(position), f.step);
  if (other != f.step)
    fail(Code::Plan,
         "{} sums micro-batches of step {}, but another copy of the stage sums those of step {}:\n "
         " {}",
         to_string(i), f.step, other, index_.describe(position));
}

void FactorAudit::check_invertible(Layer& layer, int number, int position) const {
  const Instr& i = index_.at(position);
  for (const bool inputs : {true, false}) {
    check_whole(layer, number, inputs, position);
    if (reductions_.syncs_factors(i.stage) && !layer.of(inputs).synced)
      fail(Code::Plan, "{} comes before the {} is summed over the copies of its stage:\n  {}",
           to_string(i), factor_name(number, inputs), index_.describe(position));
  }
  if (layer.a.step != layer.b.step)
    fail(Code::Plan, "{} combines factors of two steps, {} and {}:\n  {}", to_string(i),
         layer.a.step, layer.b.step, index_.describe(position));
}

// Returns true for an inversion or a gather of the cycle before the first one, which does not
// exist.
bool FactorAudit::is_of_no_cycle(int position) const {
  const Instr& i = index_.at(position);
  if (!schedule_.lowering.wraps || steps_before_ > 0) return false;
  const std::vector<Layer>& layers = stages_[i.stage].layers;
  const auto [first, end] = reductions_.layers_of(i.stage, i.part);
  return first < end &&
         std::all_of(layers.begin() + first, layers.begin() + end,
                     [](const Layer& l) { return l.a.pieces == 0 && l.b.pieces == 0; });
}

void FactorAudit::inversion(int position, int updates) {
  if (is_of_no_cycle(position)) return;
  const Instr& i = index_.at(position);
  const bool mine = is_of_inputs(i.kind);
  const std::vector<int> numbers = inverted_layers(position);
  if (numbers.empty() && reductions_.copies_sharing_inversions(i.stage) == 1)
    layer_at(position);  // throws Plan
  if (numbers.empty())
    fail(Code::Plan,
         "{} is for round {}, in which this copy inverts none of the {} layers with factors of "
         "stage {}:\n  {}",
         to_string(i), i.part, reductions_.factor_layers(i.stage), i.stage,
         index_.describe(position));
  for (const int number : numbers) {
    Layer& layer = layer_of(position, number);
    if (layer.of(mine).inverted)
      fail(Code::Plan, "{} occurs twice:\n  {}", to_string(i), index_.describe(position));
    check_invertible(layer, number, position);
    layer.of(mine).inverted = true;
    const bool both = layer.of(!mine).inverted;
    if (both && reductions_.copies_sharing_inversions(i.stage) == 1)
      renew(position, number, updates);
  }
}

// A copy of the stage posts a GATHER after its own inversions of the round. The GATHER therefore
// ends after the inversions of all copies.
void FactorAudit::gather(int position, int updates) {
  if (is_of_no_cycle(position)) return;
  const Instr& i = index_.at(position);
  const auto [first, end] = reductions_.layers_of(i.stage, i.part);
  if (reductions_.copies_sharing_inversions(i.stage) == 1 || first >= end)
    fail(Code::Plan, "{}: the copies of stage {} share inversions in {} round(s) only:\n  {}",
         to_string(i), i.stage,
         reductions_.copies_sharing_inversions(i.stage) == 1 ? 0 : reductions_.rounds(i.stage),
         index_.describe(position));
  for (const int number : inverted_layers(position)) {
    const Layer& layer = layer_of(position, number);
    for (const bool inputs : {true, false}) {
      if (layer.of(inputs).inverted) continue;
      Instr missing = i;
      missing.kind = inputs ? Kind::InvertA : Kind::InvertB;
      fail(Code::Plan, "{} comes before {}:\n  {}", to_string(i), to_string(missing),
           index_.describe(position));
    }
  }
  for (int number = first; number < end; ++number) {
    check_invertible(layer_of(position, number), number, position);
    renew(position, number, updates);
  }
}

// Enters new inverses of a layer and empties its two factors.
void FactorAudit::renew(int position, int number, int updates) {
  const Instr& i = index_.at(position);
  Layer& layer = layer_of(position, number);
  layer.inverse_of = layer.a.step;
  layer.a = layer.b = {};
  const std::int64_t model_stage = schedule_.placements[i.stage].model_stage;
  const int other = renewed_.other(model_stage << 16 | number, index_.worker_of(position), updates);
  if (other != updates)
    fail(Code::Plan,
         "{}: the inverses of layer {} change in step {}, but those of another copy of the stage "
         "in step {}:\n  {}",
         to_string(i), number, updates, other, index_.describe(position));
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
      fail(
          Code::Plan, "{} comes between the two inversions of layer {}{}:\n  {}", to_string(i), l,
          reductions_.copies_sharing_inversions(i.stage) > 1 ? ", or before they are gathered" : "",
          index_.describe(position));
    if (layer.inverse_of >= 0) s.oldest = std::max(s.oldest, updates - layer.inverse_of);
  }
}

void FactorAudit::repeat() {
  steps_before_ = schedule_.steps;
  std::vector<int> updates(stages_.size(), steps_before_);
  for (int position = 0; position < index_.size(); ++position) {
    const Instr& i = index_.at(position);
    if (i.kind == Kind::Update) ++updates[i.stage];
    if (is_curvature(i.kind)) curvature(position);
    if (is_factor_sync(i.kind)) sync(position);
    if (is_inversion(i.kind)) inversion(position, updates[i.stage]);
    if (i.kind == Kind::Gather) gather(position, updates[i.stage]);
    if (i.kind == Kind::Precondition) precondition(position, updates[i.stage]);
  }
}

// Plans with wrapped work need no check here: the second pass of repeat() has already inverted
// their factors or refused the plan.
void FactorAudit::finish(VerifyReport& report) const {
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    const bool gathered = reductions_.copies_sharing_inversions(static_cast<int>(s)) > 1;
    report.stages[s].tap_copies = stage.most_kept;
    report.oldest_inverse = std::max(report.oldest_inverse, stage.oldest);
    if (schedule_.lowering.wraps) continue;
    for (const Layer& layer : stage.layers) {
      for (const bool inputs : {true, false}) {
        const Factor& f = layer.of(inputs);
        if (f.pieces > 0 && gathered)
          fail(Code::Plan,
               "curvature is never inverted, or its inverses are never gathered:\n  {} has no "
               "{}GATHER:{} after it",
               index_.describe(f.last), s,
               index_.at(f.last).part / reductions_.copies_sharing_inversions(static_cast<int>(s)));
        if (f.pieces > 0)
          fail(Code::Plan, "curvature is never inverted:\n  {} has no {}INVERT_{}:{} after it",
               index_.describe(f.last), s, inputs ? "A" : "B", index_.at(f.last).part);
      }
    }
  }
}

}  // namespace hetu
