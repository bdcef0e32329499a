// The one chain that makes a proved plan: computations, then messages and reductions, then the
// proof. The tool, training, the chooser and modules make their plans with these functions. A plan
// is a value: it depends on the arguments only and needs no links.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/schedule.h"
#include "pipeline/verify/verify.h"

namespace hetu {

/// Origin of the computations of a plan, and the changes that apply to them.
struct PlanSource {
  /// Name of the method that generates the rows from `sizes`. Not read if `rows` is set.
  std::string method = {};
  std::optional<Schedule> rows = {};  ///< rows of a FILE or of the user
  /// Sizes for the method. `with_recompute` and `split_backward` change rows of both origins.
  Sizes sizes = {};
  const Costs* costs = nullptr;  ///< costs for splitting backwards; nullptr: the default costs
  /// True if the run applies the runtime rule of `sizes`: the plan gets the run policy. Otherwise
  /// the generator applies the rule to the rows.
  bool rule_at_run_time = false;
  /// True if servers run the optimizer (sync method ps): each of `sizes.steps` steps ends with its
  /// updates in the rows; see with_flushes().
  bool flushes = false;
};

/// Returns the computations of a plan, without messages: generates the rows unless they are given,
/// adds flushes, adds recomputations, and splits backwards, in this order. Throws InvalidArgument,
/// as generate() and the functions of the changes do.
Schedule computations(const PlanSource& source);

/// A lowered plan, and the report of its proof.
struct ProvedPlan {
  Schedule lowered;
  VerifyReport report;
};

/// Lowers computations by `how` and proves the result. Throws InvalidArgument, as lower(), and
/// Plan.
ProvedPlan proved_plan(const Schedule& compute, const Lowering& how,
                       const VerifyOptions& limits = {});

/// Proves a plan that is lowered already, and before it the plan as the user gave it, so that
/// errors count steps in the user's own rows. Throws Plan.
VerifyReport prove(const Schedule& as_given, const Schedule& lowered, const VerifyOptions& limits);

/// Returns the number of send slots per ordered pair of workers for a run: enough for the plan to
/// make progress, enough to run without waiting in its own order under each of `costs`, and one
/// more for the message that is being computed.
int send_slots_for(const Schedule& lowered, const std::vector<Costs>& costs);

}  // namespace hetu
