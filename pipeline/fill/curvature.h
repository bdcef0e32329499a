// K-FAC's work in a plan. A synchronous, lowered step becomes a cycle of steps. The first step of
// the cycle feeds the factors, which are then summed and inverted; later steps use the inverses.
// Read by training, rehearsals and the tool.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/ir/fill_rule.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Options of with_curvature().
struct CurvatureOptions {
  std::vector<int> layers;  ///< layers with factors, by model stage
  std::int64_t every = 1;   ///< least number of steps between two refreshes
  FillRule rule = FillRule::After;
  InverseMakers makers = InverseMakers::Owners;
  /// A piece is placed only in a gap that is at least `slack` times as long as the piece.
  double slack = 1;
};

/// Returns the cycle, which has not been verified. It has `every` steps or, with rules other than
/// After, as many more as its work needs. Each step multiplies its gradients by the newest inverses
/// (PRECONDITION). With FillRule::After, the first step uses inverses from its own micro-batches.
///
/// Factors of a stage with several copies are summed over the copies, in the same order on all of
/// them. With After, the sums are at the end of the step. Otherwise they come once all copies have
/// their last piece, or at the beginning of the next step if this one would have to wait. Inverses
/// that copies share (InverseMakers::Owners) are gathered in the step in which they are computed.
/// Work that fits no gap of two consecutive steps goes to the end of the second one.
///
/// With FillRule::Wrap, inversions without space in the cycle move to the next cycle, before it has
/// pieces of their layers, if that saves a step. Bubbles are those of simulate() under `costs`.
///
/// Source: Osawa et al. 2023 (PipeFisher), section 3; differences in docs/kfac.md.
/// Throws InvalidArgument for a plan that is not lowered, is not one step with a flush, has
/// backwards by half micro-batches, or has two copies of a stage on one worker. Also throws if the
/// layers don't fit the plan.
Schedule with_curvature(const Schedule& step, const CurvatureOptions& how, const Costs& costs);

/// Splits a cycle into its steps. Each is a plan of one step in which computations and messages
/// have micro-batch ids 0…M-1. The ids of a CURVATURE are those of the step that feeds it. Throws
/// InvalidArgument for a plan without K-FAC's work.
std::vector<Schedule> steps_of(const Schedule& cycle);

/// Returns the first of the repeating cycles, which has no work from an earlier cycle. If the cycle
/// wraps work, the result is incomplete: the next cycle runs the remaining inversions.
Schedule first_of(const Schedule& cycle);

/// Returns true if a step of a cycle feeds factors.
bool feeds_factors(const Schedule& cycle, int step);

}  // namespace hetu
