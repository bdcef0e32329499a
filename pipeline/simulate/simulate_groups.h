// Predicts several pipelines that average their weights in groups. The events are those of each
// pipeline's plan. The groups are decided by groups::Policy, which the coordinator of a real run
// uses, too.
#pragma once
#include <vector>

#include "pipeline/groups/policy.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// A prediction and the groups that closed, in order of time. Times of groups are in microseconds;
/// see unit_us().
struct GroupSimulation {
  Simulation run;
  std::vector<groups::Decision> groups;
};

/// Simulates a plan that is lowered with WeightAverages on schedule.lowering.pipelines pipelines.
/// The run ends when they have applied total_micros updates each on average. A fast pipeline goes
/// on with further micro-batches, in the order of the same plan over more steps. `policy` gives the
/// method and its constants. This function sets the policy's sizes, and its seed from `options`.
///
/// An average over two or more pipelines takes as long as the sum of the stage's gradient over its
/// copies, one at a time per worker. With policy.overlapped only the next update waits for it,
/// otherwise the row does. Throughput counts the last stages between the fill of all pipelines and
/// the first end of a pipeline.
///
/// Throws as simulate(). Also throws InvalidArgument for fewer than 2 pipelines, for a plan that
/// doesn't update after every backward or can't be extended, and for bounded send slots.
GroupSimulation simulate_groups(const Schedule& schedule, const Costs& costs,
                                const SimulateOptions& options, const groups::Options& policy);

/// Returns the micro-batches per time unit of pipelines that go each at its own pace. `ends` holds,
/// per pipeline, the ends of the last stage's backwards in ascending order. The interval starts
/// when every pipeline has done `fill` of them. It ends at `until` or when the first pipeline ends,
/// whichever is earlier. Each pipeline counts between its first and its last backward in the
/// interval. Returns 0 if a pipeline has no backward.
double steady_rate(const std::vector<std::vector<double>>& ends, int fill, double until);

/// Returns the prediction, with the sizes of the groups, as one JSON object.
std::string to_json(const GroupSimulation& simulation);

}  // namespace hetu
