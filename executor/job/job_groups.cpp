#include "executor/job/job_groups.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"
#include "pipeline/ir/run_length.h"

namespace hetu {

JobGroups::JobGroups(const JobPlan& plan, comm::Transport& links) : plan_(plan), links_(links) {
  const JobOptions& job = plan.options;
  const Averaging& how = *job.averaging;
  const groups::Options policy = group_policy(job);
  ps::ClientOptions client;
  client.policy = policy;
  client.worker = plan.number();
  client.pipeline = plan.pipeline;
  client.stage = plan.stage();
  client.timeout_s = links.options().timeout_s;
  client.group_log = how.group_log;
  if (how.apart) {
    comm::MeshAddress address = how.apart->address;
    address.worker = plan.pipeline;
    address.workers = job.pipelines;
    mesh_ = comm::open_mesh(address, links.options());
    client.endpoint = mesh_->endpoint();
    client.on_failure_shrink = true;
  }
  client_ = how.connect(client);
  if (mesh_) mesh_->meet(client_->endpoints());
  Membership::Position position{plan.stage(), plan.pipeline, {}, mesh_.get()};
  for (int d = 0; d < job.pipelines; ++d)
    position.workers.push_back(mesh_ ? d : d * plan.width() + plan.row);
  AverageOptions options = average_options(policy, how.overlap);
  options.observe = how.observe;
  comm::Transport& over = mesh_ ? *mesh_ : links;
  members_ = std::make_unique<Membership>(over, *client_, position);
  averager_ = std::make_unique<Averager>(*members_, *client_, options);
}

std::vector<WorkerNeed> JobGroups::of_all_pipelines(std::vector<WorkerNeed> own) {
  if (!mesh_) return own;
  std::vector<WorkerNeed> all(own.size() * plan_.options.pipelines);
  for (const auto& [pipeline, text] : members_->exchange(to_text(own))) {
    const std::vector<WorkerNeed> others = needs_from(text);
    if (others.size() != own.size())
      fail(Code::Comm, "pipeline {} has {} workers, but this pipeline has {}", pipeline,
           others.size(), own.size());
    std::copy(others.begin(), others.end(),
              all.begin() + pipeline * static_cast<std::ptrdiff_t>(own.size()));
  }
  return all;
}

void JobGroups::begin_run(std::int64_t step, std::int64_t steps) {
  run_begin_ = step;
  run_end_ = step + steps;
  batches_before_ = 0;
}

int JobGroups::planned_steps() const {
  const std::int64_t known = averager_->stop_after();
  return known == groups::kRunsOn ? least_steps(plan_.lowered) : static_cast<int>(known);
}

// Updates of other pipelines become known in leaps. Over a whole run the counts add up to the
// batches of all pipelines.
std::int64_t JobGroups::new_batches() {
  const std::int64_t done = averager_->updates_of_all();
  return std::max<std::int64_t>(0, done - std::exchange(batches_before_, done));
}

void JobGroups::ask_to_stop() {
  asks_to_stop_ = true;
  averager_->stop_soon();
}

std::int64_t JobGroups::end_run() {
  stop_asked_ = any_asks_to_stop();
  asks_to_stop_ = false;
  return stop_asked_ ? std::min(run_end_, run_begin_ + mean_updates()) : run_end_;
}

// Sums a value over all workers of the job.
double JobGroups::sum(double value, int part, const char* what) {
  const int run = static_cast<int>(run_begin_ & 0x3fff);
  comm::sum_f64(
      links_, comm::everyone(links_), &value, 1,
      {comm::make_tag(kConsensusTag, 0, 0, part, run), [&] { return std::string(what); }});
  return value;
}

// Returns the same answer on every worker of the job.
bool JobGroups::any_asks_to_stop() {
  if (members_->may_lose()) return members_->any_raises(asks_to_stop_);
  return sum(asks_to_stop_ ? 1 : 0, 2, "the stop requests of all workers") > 0;
}

// Returns the mean over the pipelines in this run, rounded down; the same on every worker of the
// job.
std::int64_t JobGroups::mean_updates() {
  const std::int64_t own = averager_->updates();
  if (members_->may_lose()) {
    std::int64_t sum = 0;
    const auto all = members_->exchange(fmt::format("{}", own));
    for (const auto& [pipeline, updates] : all) sum += std::stoll(updates);
    return sum / static_cast<std::int64_t>(all.size());
  }
  return static_cast<std::int64_t>(sum(static_cast<double>(own), 3, "the number of updates")) /
         links_.workers();
}

}  // namespace hetu
