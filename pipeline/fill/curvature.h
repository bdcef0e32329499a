// K-FAC's work in a plan: a synchronous step, lowered, becomes a cycle of several, of which the
// first feeds the factors; what it feeds is summed, inverted and used from then on. Read by
// training, rehearsals and the tool.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/fill_rule.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

struct CurvatureOptions {
  std::vector<int> layers;  ///< with factors, by model stage
  std::int64_t every = 1;   ///< steps between two refreshes, at least
  FillRule rule = FillRule::After;
  InverseMakers makers = InverseMakers::Owners;
  /// A piece is placed in a gap that is at least so many times as long.
  double slack = 1;
};

/// The cycle, proved by nobody yet: `every` steps or, by the other rules, as many more as its work
/// needs. Each step multiplies its gradients by the newest inverses (PRECONDITION); by
/// FillRule::After those are of its own micro-batches in the first step. Factors of a stage with
/// several copies are summed over them, at the end of a step (After), or once all copies have their
/// last piece or, where the step would wait for that, at the beginning of the next one (Best), in
/// the same order by all. Inverses that copies share out (InverseMakers::Owners) are
/// gathered in the step in which they are made. What fits no gap of two steps that follow each
/// other stands at the end of the second one. By FillRule::Wrap inversions that have no room left
/// in the cycle stand in the one after it, before that has a piece of their layers, if that saves a
/// step. Bubbles are those of simulate() under `costs`.
/// Source: Osawa et al. 2023 (PipeFisher), section 3; differences in docs/kfac.md.
/// Throws InvalidArgument for a plan that is not lowered, is not of one step with a flush, has
/// backwards by half micro-batches, or two copies of a stage on one worker; layers that do not fit.
Schedule with_curvature(const Schedule& step, const CurvatureOptions& how, const Costs& costs);

/// A cycle in its steps, each as a plan of one step whose computations and messages have ids 0…M-1;
/// the ids of a CURVATURE are those of the step that feeds it. Throws InvalidArgument for a plan
/// without K-FAC's work.
std::vector<Schedule> steps_of(const Schedule& cycle);

/// The first cycle of those that repeat, which has nothing of a cycle before. Of a cycle whose work
/// wraps it is not a plan by itself: what it leaves, the next one inverts.
Schedule first_of(const Schedule& cycle);

/// Whether that step of a cycle feeds factors.
bool feeds_factors(const Schedule& cycle, int step);

}  // namespace hetu
