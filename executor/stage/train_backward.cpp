// Backwards of a training worker: whole, or input and weight gradients apart; what they add to the
// gradient sums, and the slots that they give back.
#include <algorithm>
#include <cstring>

#include "executor/stage/train_runner.h"

namespace hetu {

// What makes input gradients: they go to the stages before.
void TrainRunner::run_back(Stage& stage, const Function& function, int micro) {
  for (const Boundary& boundary : stage.plan->boundaries) {
    if (!boundary.incoming && boundary.backward) stage.memory->ring(boundary.ring).take(micro);
  }
  stage.memory->ring(kHeldRing).take(micro);
  run(stage, function, micro, stage.plan->half_backward);
  pack(stage, true, micro);
  hand_over(stage, true, micro);
}

void TrainRunner::backward(int placement, int micro) {
  Stage& stage = at(placement);
  run_back(stage, stage.plan->backward, micro);
  end_backward(stage, micro, true, true);
}

void TrainRunner::input_grad(int placement, int micro) {
  Stage& stage = at(placement);
  run_back(stage, stage.plan->input_grad, micro);
  end_backward(stage, micro, true, false);
}

void TrainRunner::weight_grad(int placement, int micro) {
  Stage& stage = at(placement);
  run(stage, stage.plan->weight_grad, micro, stage.plan->half_backward);
  end_backward(stage, micro, false, true);
}

void TrainRunner::recompute(int placement, int micro) {
  Stage& stage = at(placement);
  SlotRing& saved = stage.memory->ring(kSavedRing);
  if (saved.slot_of(forward_micro(micro)) == kNone) saved.take(forward_micro(micro));
  note_peak();
  run(stage, stage.plan->recompute, micro, stage.plan->half_backward);
}

void TrainRunner::note_peak() {
  std::int64_t bytes = 0;
  for (const Stage& stage : stages_)
    if (stage.plan) bytes += stage.memory->ring(kSavedRing).used() * stage.plan->memory.saved;
  most_bytes_ = std::max(most_bytes_, bytes);
  most_halves_ = std::max(most_halves_, live_halves_);
}

void TrainRunner::end_backward(Stage& stage, int micro, bool input_done, bool weight_done) {
  const int of = forward_micro(micro);
  const int parts = stage.plan->half_backward ? 2 : 1;
  if (input_done && ++stage.inputs[cell(of)] == parts) --live_halves_;
  if (weight_done && ++stage.weights[cell(of)] == parts) --live_halves_;
  const bool both = (input_done && weight_done) || stage.half_done[cell(micro)] != 0;
  stage.half_done[cell(micro)] = 1;
  if (!both) return;
  StageMemory& memory = *stage.memory;
  memory.ring(kHeldRing).release(micro);
  for (const Boundary& boundary : stage.plan->boundaries) {
    if (boundary.incoming && boundary.backward) memory.ring(boundary.ring).release(micro);
  }
  if (stage.inputs[cell(of)] == parts && stage.weights[cell(of)] == parts) {
    memory.ring(kFeedRing).release(of);
    memory.done_with_weights(of);
    memory.ring(kSavedRing).release(of);
    for (const Boundary& boundary : stage.plan->boundaries) {
      if (boundary.incoming && !boundary.backward) memory.ring(boundary.ring).release(of);
    }
  }
  if (++stage.backwards < due(stage)) return;
  for (std::size_t p = 0; p < stage.plan->parameters.size();
       ++p) {  // several uses here: added in model order
    const StageParameter& parameter = stage.plan->parameters[p];
    if (parameter.uses.size() < 2) continue;
    float* sum = memory.floats(stage.plan->uses[parameter.uses[0]].accumulator);
    for (std::size_t u = 1; u < parameter.uses.size(); ++u) {
      add_into(sum, memory.floats(stage.plan->uses[parameter.uses[u]].accumulator),
               parameter.elements);
    }
    gradient_done(stage, static_cast<int>(p));
  }
}

void TrainRunner::accumulate(Stage& stage, const Accumulate& a, int micro) {
  const StageUse& use = stage.plan->uses[a.use];
  const std::int64_t elements = stage.plan->parameters[use.parameter].elements;
  float* sum = stage.memory->floats(use.accumulator);
  if (!stage.fresh[a.use]) {
    add_into(sum, static_cast<const float*>(stage.memory->at(a.gradient, micro)), elements);
  } else if (a.output < 0) {
    std::memcpy(sum, stage.memory->at(a.gradient, micro), elements * sizeof(float));
  }
  stage.fresh[a.use] = 0;
  const StageParameter& parameter = stage.plan->parameters[use.parameter];
  if (parameter.uses.size() == 1 && stage.backwards == due(stage) - 1)
    gradient_done(stage, use.parameter);
}

// A gradient is final: once its bucket's others are too, the sum over the copies may start under
// the rest of backward.
void TrainRunner::gradient_done(Stage& stage, int parameter) {
  const int b = stage.bucket_of[parameter];
  GradientRange& bucket = stage.buckets[b];
  if (--bucket.missing > 0 || (stage.copies == 1 && bucket.tied_pair == kNone)) return;
  if (bucket.shared) return;  // at its REDUCE_GRAD, when all gradients here are whole
  bucket_ready(static_cast<int>(&stage - stages_.data()), b);
}

}  // namespace hetu
