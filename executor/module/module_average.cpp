#include "executor/module/module_average.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "net/transport/collective.h"
#include "net/transport/tag_kinds.h"

namespace hetu {

ModuleAverage::ModuleAverage(const Averaging& how, comm::Transport& links, int pipelines)
    : links_(links) {
  if (how.apart)
    fail(Code::Unsupported,
         "the pipelines of a module end together, so --on-failure shrink is not supported; start "
         "the job without it");
  require(pipelines >= 1 && links.workers() % pipelines == 0,
          "{} workers cannot be divided into {} pipelines", links.workers(), pipelines);
  const int width = links.workers() / pipelines;
  Averaging flushed = how;
  // All stages of a module's pipeline update at once, behind a flush.
  flushed.policy.flushes = true;
  const int stage = links.worker() % width, pipeline = links.worker() / width;
  ps::ClientOptions client;
  client.policy = group_policy(flushed, width, pipelines);
  client.worker = links.worker();
  client.pipeline = pipeline;
  client.stage = stage;
  client.timeout_s = links.options().timeout_s;
  client.group_log = how.group_log;
  client_ = how.connect(client);
  Membership::Position position{stage, pipeline, {}, nullptr};
  for (int d = 0; d < pipelines; ++d) position.workers.push_back(d * width + stage);
  AverageOptions options = average_options(client.policy, how.overlap);
  options.observe = how.observe;
  members_ = std::make_unique<Membership>(links, *client_, position);
  averager_ = std::make_unique<Averager>(*members_, *client_, options);
}

// Unlocks the weights, because the averager's thread may be waiting for them.
ModuleAverage::~ModuleAverage() {
  if (change_.owns_lock()) change_.unlock();
}

void ModuleAverage::begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights) {
  require(updates >= 1, "a run needs at least one update, got {}", updates);
  weights_ = weights;
  averager_->set_done(step);
  averager_->begin_run(step, updates, weights);
}

void ModuleAverage::computed() {
  HETU_ASSERT(!change_.owns_lock());
  if (std::exchange(open_, false)) averager_->end();
  change_ = averager_->change();
  // Averages that changed the weights in the meantime are added before the owner changes them.
  averager_->bring_into(weights_);
}

void ModuleAverage::updated() {
  HETU_ASSERT(change_.owns_lock());
  change_.unlock();
  if (averager_->overlaps()) {
    averager_->begin();
    open_ = true;
  } else {
    averager_->average_now(weights_);
  }
}

void ModuleAverage::end_run(std::vector<DeviceSpan> states) {
  if (std::exchange(open_, false)) averager_->end();
  averager_->end_run();
  states.insert(states.begin(), weights_);
  averager_->consensus(states);
}

std::vector<double> ModuleAverage::mean(std::vector<double> values) {
  const comm::Group& workers = members_->position().workers;
  const auto what = [] { return std::string("the means over pipelines"); };
  comm::sum_f64(links_, workers, values.data(), values.size(),
                {comm::make_tag(kConsensusTag, members_->position().stage, 1, 4, means_++), what});
  for (double& value : values) value /= static_cast<double>(workers.size());
  return values;
}

}  // namespace hetu
