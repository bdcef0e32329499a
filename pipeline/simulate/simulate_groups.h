// Predicts several pipelines that average their weights in groups: the events of each pipeline's
// plan, with who averages with whom decided by the policy that the coordinator of a real run asks.
#pragma once
#include <vector>

#include "pipeline/groups/policy.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// A prediction, and the groups that closed, in order of time (microseconds; see unit_us).
struct GroupSimulation {
  Simulation run;
  std::vector<groups::Decision> groups;
};

/// Runs a plan that is lowered with average_weights on schedule.lowering.pipelines pipelines until
/// they have applied its total_micros updates each on average; a fast pipeline goes on with further
/// micro-batches, in the order of the same plan over more steps. `policy` gives the method and its
/// constants; sizes and `seed` are set here. An average of two and more takes what the sum of
/// the stage's gradient over its copies does, one at a time per worker; with policy.overlapped only
/// the next update waits for it, else the row does. throughput counts the last stages between the
/// fill of all pipelines and the first end.
///
/// Throws as simulate; InvalidArgument also for fewer than 2 pipelines, a plan that does not update
/// after every backward, one that cannot go on, or bounded send slots.
GroupSimulation simulate_groups(const Schedule& schedule, const Costs& costs,
                                const SimulateOptions& options, const groups::Options& policy);

/// Micro-batches per time of pipelines that go on each at its own pace: `ends` are the ends of the
/// last stage's backwards, ascending, per pipeline. Counted from when every pipeline has done
/// `fill` of them to when the first one ends, no later than `until`; of each pipeline between its
/// first and last in there. 0 if a pipeline has none.
double steady_rate(const std::vector<std::vector<double>>& ends, int fill, double until);

/// The JSON of the contract, with the groups' sizes, one object.
std::string to_json(const GroupSimulation& simulation);

}  // namespace hetu
