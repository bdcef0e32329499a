#include "executor/rehearse/rehearse_groups.h"

#include <numeric>

#include "base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/run_length.h"

namespace hetu {
namespace {

comm::Group pipeline_of(const Schedule& plan, int worker) {
  const int width = static_cast<int>(plan.workers.size());
  comm::Group group(width);
  std::iota(group.begin(), group.end(), worker / width * width);
  return group;
}

}  // namespace

Schedule by_updates(const Schedule& lowered) {
  Schedule plan = lowered;
  plan.steps = total_micros(lowered);
  plan.micro_batches = 1;
  require(run_grain(plan) == 1,
          "a rehearsal of groups needs a plan whose stages update after every backward; '{}' does "
          "not; use pipedream",
          plan.method);
  require(
      plan.steps >= least_steps(plan),
      "a rehearsal of groups needs at least {} micro-batches with this plan of '{}', but it has "
      "{}; give more --steps or --micro-batches",
      least_steps(plan), plan.method, plan.steps);
  return plan;
}

GroupMember::GroupMember(const Schedule& lowered, const Costs& costs, const Pace& pace,
                         const RehearsedGroups& how, comm::Transport& transport) {
  const int width = static_cast<int>(lowered.workers.size());
  ps::ClientOptions client;
  client.policy = how.policy;
  client.policy.stages = width;
  client.policy.pipelines = lowered.lowering.pipelines;
  client.policy = groups::with_defaults(client.policy);
  client.worker = transport.worker();
  client.pipeline = transport.worker() / width;
  client.stage = transport.worker() % width;
  client.timeout_s = transport.options().timeout_s;
  client.group_log = how.log;
  client_ = how.connect(client);
  Membership::Position position{client.stage, client.pipeline, {}};
  for (int d = 0; d < client.policy.pipelines; ++d)
    position.workers.push_back(d * width + client.stage);
  AverageOptions options;
  options.policy = client.policy;
  options.overlap = client.policy.overlapped;
  // The averager adds the time that the modelled network takes for an average.
  const double takes = Timing(lowered, costs, pace.stragglers).over_copies(client.stage);
  options.network_ns = static_cast<std::int64_t>(takes * pace.unit_ns);
  members_ = std::make_unique<Membership>(transport, *client_, position);
  averager_ = std::make_unique<Averager>(*members_, *client_, options);
}

GroupRuns::GroupRuns(const Schedule& plan, TimedStages& stages, const Interpreter::Links& links,
                     Averager& averager)
    : plan_(plan),
      stages_(stages),
      averager_(averager),
      syncs_(links.syncs),
      pipeline_(links.transport.worker() / static_cast<int>(plan.workers.size())),
      run_(stages, links, 0, pipeline_of(plan, links.transport.worker()), &averager) {}

void GroupRuns::begin() {
  stages_.fill_weights(static_cast<float>(pipeline_));
  for (WeightSync* sync : syncs_) sync->begin_run(0, plan_.steps);
}

void GroupRuns::run(int first_step, TraceRecorder& trace) {
  // If the length is known, the plan has exactly that length. Otherwise a short plan suffices,
  // whose body repeats until the averager ends the run.
  const bool known = averager_.stop_after() != groups::kRunsOn;
  run_.begin_averaged(known ? plan_ : with_steps(plan_, least_steps(plan_)), first_step, &trace);
  do {
    while (run_.next_report()) {
    }
  } while (run_.advance());
  while (run_.next_report()) {
  }
  const std::vector<float>& weights = stages_.weights();
  weight_ =
      std::accumulate(weights.begin(), weights.end(), 0.0) / static_cast<double>(weights.size());
}

}  // namespace hetu
