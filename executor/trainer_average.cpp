// A training job whose pipelines average their weights: what is refused, this worker's line to the
// coordinator, runs whose length the pipeline learns while it goes on.
#include <algorithm>
#include <utility>

#include "executor/comm/tag_kinds.h"
#include "executor/trainer.h"
#include "graph/base/error.h"
#include "pipeline/run_length.h"

namespace hetu {

void Trainer::check_averaging(const Schedule& plan) const {
  if (!options_.averaging) return;
  const char* method = groups::method_name(options_.averaging->policy.method);
  require(options_.pipelines >= 2,
          "{} averages the weights of pipelines, and there is 1: give devices for at least 2 "
          "(pipe_2_{}), or leave it out",
          method, options_.stages);
  require(hetu::is_asynchronous(plan) && run_grain(compute_plan(least_steps(plan))) == 1,
          "{} needs a method whose stages update one by one without a flush, such as pipedream; "
          "'{}' sums gradients of all pipelines once per step",
          method, plan.method);
  for (const StagePair& tie : how_.tied)
    fail(Code::InvalidArgument,
         "stages {} and {} share a weight, but {} averages each stage with other pipelines: untie "
         "it (\"tie_word_embeddings\": false), or use one stage",
         tie.first, tie.second, method);
  group_policy();
}

// With every constant filled in; throws what is out of range.
groups::Options Trainer::group_policy() const {
  groups::Options policy = options_.averaging->policy;
  policy.stages = options_.stages;
  policy.pipelines = options_.pipelines;
  policy.overlapped = options_.averaging->overlap;
  return groups::with_defaults(policy);
}

comm::Group Trainer::own_pipeline() const {
  const int width = static_cast<int>(lowered_.workers.size());
  comm::Group group(width);
  for (int w = 0; w < width; ++w) group[w] = transport_.worker() - row_ + w;
  return group;
}

// Of this worker among those of all pipelines.
int Trainer::number() const { return pipeline_ * static_cast<int>(lowered_.workers.size()) + row_; }

void Trainer::join_groups() {
  const Averaging& how = *options_.averaging;
  const groups::Options policy = group_policy();
  const bool waits = policy.method == groups::Method::PartialReduce && policy.sync_period == 1;
  ps::ClientOptions client;
  client.policy = policy;
  client.worker = number();
  client.pipeline = pipeline_;
  client.stage = stage();
  client.timeout_s = transport_.options().timeout_s;
  client.group_log = how.group_log;
  if (how.apart) {
    comm::MeshPlace door = how.apart->door;
    door.worker = pipeline_;
    door.workers = options_.pipelines;
    mesh_ = comm::open_mesh(door, transport_.options());
    client.endpoint = mesh_->endpoint();
    client.on_failure_shrink = true;
  }
  groups_ = how.connect(client);
  if (mesh_) mesh_->meet(groups_->endpoints());
  const int width = static_cast<int>(lowered_.workers.size());
  Averager::Place place{stage(), pipeline_, {}, mesh_.get()};
  for (int d = 0; d < options_.pipelines; ++d)
    place.workers.push_back(mesh_ ? d : d * width + row_);
  AverageOptions options;
  options.policy = policy;
  options.overlap = how.overlap && !waits;
  options.observe = how.observe;
  comm::Transport& links = mesh_ ? *mesh_ : transport_;
  averager_ = std::make_unique<Averager>(links, *groups_, place, options);
}

// Only a run that is known to be short needs a plan of its own length.
void Trainer::begin_averaged_run(std::int64_t steps) {
  runner_->begin_averaged_run(steps);
  run_left_ = 1;
  run_begin_ = step_;
  run_end_ = step_ + steps;
  batches_before_ = 0;
  const std::int64_t known = averager_->stop_after();
  const Schedule plan =
      lowered_for(known == groups::kRunsOn ? least_steps(lowered_) : static_cast<int>(known));
  runs_->begin_averaged(plan, static_cast<int>(step_), trace_.get());
  if (trace_) recorded_.push_back({static_cast<int>(step_), plan});
}

// What has been heard comes in leaps; a run is `batches` of all pipelines long in any case.
void Trainer::count_batches(StepResult& result) {
  const std::int64_t done = averager_->updates_of_all();
  result.batches = std::max<std::int64_t>(0, done - std::exchange(batches_before_, done));
  // A rate counts no further than the run's nominal length.
  result.learning_rate = optimizer_.rate.at(std::min(result.step + 1, run_end_));
}

// The same answer on every worker of the job.
bool Trainer::any_asks_to_stop() {
  if (averager_->may_lose()) return averager_->any_raises(asks_to_stop_);
  double value = asks_to_stop_ ? 1 : 0;
  const auto what = [] { return std::string("whether a worker asks to stop"); };
  comm::sum_f64(
      transport_, comm::everyone(transport_), &value, 1,
      {comm::make_tag(kConsensusTag, 0, 0, 2, static_cast<int>(run_begin_ & 0x3fff)), what});
  return value > 0;
}

// Of the pipelines in this run, rounded down; the same on every worker of the job.
std::int64_t Trainer::mean_updates() {
  const std::int64_t own = averager_->updates();
  if (averager_->may_lose()) {
    std::int64_t sum = 0;
    const auto all = averager_->exchange(fmt::format("{}", own));
    for (const auto& [pipeline, updates] : all) sum += std::stoll(updates);
    return sum / static_cast<std::int64_t>(all.size());
  }
  auto sum = static_cast<double>(own);
  const auto what = [] { return std::string("how many updates there were"); };
  comm::sum_f64(
      transport_, comm::everyone(transport_), &sum, 1,
      {comm::make_tag(kConsensusTag, 0, 0, 3, static_cast<int>(run_begin_ & 0x3fff)), what});
  return static_cast<std::int64_t>(sum) / transport_.workers();
}

}  // namespace hetu
