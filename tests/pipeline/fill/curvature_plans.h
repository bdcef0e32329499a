// Plans, costs and work for the tests of K-FAC's placement.
#pragma once
#include "pipeline/fill/curvature.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"

namespace hetu {

inline Schedule one_step(const char* method, int stages, int micros, int pipelines = 1) {
  Sizes sizes;
  sizes.stages = stages;
  sizes.micro_batches = micros;
  Lowering how;
  how.pipelines = pipelines;
  how.reduce_scalars = true;
  return lower(generate(method, sizes), how);
}

// Returns the times of BERT-base on a P100 with 32 samples (config/costs). A block is a stage.
inline Costs published() {
  StageCost c;
  c.forward = 9.75;
  c.input_grad = c.weight_grad = 16.45 / 2;
  c.curvature = {.factors = 25.55, .inversion = 71.67, .precondition = 6.81};
  Costs costs;
  costs.per_worker = false;
  costs.stages = {c};
  return costs;
}

inline CurvatureOptions how_of(const Schedule& step, FillRule rule, int layers = 6, int every = 1,
                               InverseMakers makers = InverseMakers::Owners) {
  CurvatureOptions how;
  how.makers = makers;
  how.layers.assign(model_stages(step), layers);
  how.every = every;
  how.rule = rule;
  return how;
}

// Returns costs with inversions that take enough of the bubbles for a wrap to save a step.
inline Costs costly_inversions() {
  Costs costs = published();
  costs.stages[0].curvature.inversion *= 1.5;
  return costs;
}

// Returns a wrapped plan. `step` has 4 stages and 4 micro-batches, by 1f1b or chimera.
inline Schedule wrapped(const Schedule& step) {
  return with_curvature(step, how_of(step, FillRule::Wrap, 18), costly_inversions());
}

}  // namespace hetu
