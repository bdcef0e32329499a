#include "pipeline/groups/board.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace hetu::groups {

Board::Board(const Options& options)
    : options_(options),
      states_(static_cast<std::size_t>(options.stages) * options.pipelines),
      alive_(options.pipelines, true),
      newest_(states_.size(), 0),
      counts_(options.stages, 0),
      serials_(options.stages, 0),
      done_(options.pipelines, 0),
      stop_(options.pipelines, 0),
      underway_(options.pipelines, 0) {}

std::vector<int> Board::pending(int stage) const {
  std::vector<int> open;
  for (int p = 0; p < pipelines(); ++p)
    if (state(stage, p).open) open.push_back(p);
  return open;
}

int Board::expected(int stage) const {
  int n = 0;
  for (int p = 0; p < pipelines(); ++p) n += is_expected(stage, p) ? 1 : 0;
  return n;
}

void Board::begin_run(const std::vector<std::int64_t>& done, std::int64_t updates) {
  require(static_cast<int>(done.size()) == pipelines(),
          "a run needs the number of earlier updates of each of the {} pipelines, got {} numbers",
          pipelines(), done.size());
  require(updates >= 1, "a run needs at least 1 update per pipeline, got {}", updates);
  for (int s = 0; s < stages(); ++s) {
    for (int p = 0; p < pipelines(); ++p)
      require(!state(s, p).open,
              "a run can't begin while the request of pipeline {} at stage {} is open", p, s);
  }
  for (RequestState& s : states_) {
    s.answered = 0;
    s.seen = false;  // the pause between two runs is not an interval
  }
  done_ = done;
  std::fill(newest_.begin(), newest_.end(), 0);  // all copies are equal at the start
  std::fill(counts_.begin(), counts_.end(), 0);
  target_ = updates * std::count(alive_.begin(), alive_.end(), true);
  const std::int64_t known = known_stop(options_, updates);
  due_ = known != kRunsOn;
  std::fill(stop_.begin(), stop_.end(), known);
  std::fill(underway_.begin(), underway_.end(), updates_before_answer(stages(), 0));
}

void Board::arrive(const Request& r, std::int64_t now_us) {
  require(r.stage >= 0 && r.stage < stages(), "a request names stage {}, but the stages are 0…{}",
          r.stage, stages() - 1);
  require(r.pipeline >= 0 && r.pipeline < pipelines(),
          "a request names pipeline {}, but the pipelines are 0…{}", r.pipeline, pipelines() - 1);
  require(alive_[r.pipeline], "pipeline {} sent a request at stage {} after it was removed as dead",
          r.pipeline, r.stage);
  RequestState& s = states_[at(r.stage, r.pipeline)];
  const std::int64_t next = done_[r.pipeline] + s.answered + 1;
  require(!s.open,
          "pipeline {} sent a request at stage {} for update {}, but its request {} is still open",
          r.pipeline, r.stage, r.update, next);
  require(r.update == next,
          "pipeline {} sent a request at stage {} for update {}, but its next update is {}",
          r.pipeline, r.stage, r.update, next);
  require(s.answered < stop_[r.pipeline],
          "pipeline {} sent a request at stage {} for update {}, but it stops after update {}",
          r.pipeline, r.stage, r.update, next - 1);
  pass_time(now_us);
  measure(s);
  s.open = true;
  s.arrived_us = now_us_;
}

// With overlapped averaging, a wait costs the pipeline nothing unless it is longer than its next
// update takes. After such a long wait, the time between two requests doesn't measure the pipeline.
void Board::measure(RequestState& s) const {
  if (!s.seen) return;
  const auto held = static_cast<double>(s.released_us - s.arrived_us);
  if (options_.overlapped && s.interval_us > 0 && held > s.interval_us) return;
  const auto interval =
      static_cast<double>(now_us_ - (options_.overlapped ? s.arrived_us : s.released_us));
  if (s.interval_us == 0) {
    s.interval_us = interval;
    return;
  }
  s.spread_us += options_.smoothing * (std::fabs(interval - s.interval_us) - s.spread_us);
  s.interval_us += options_.smoothing * (interval - s.interval_us);
}

std::int64_t Board::predicted_us(int stage, int pipeline) const {
  const RequestState& s = state(stage, pipeline);
  const auto interval = static_cast<std::int64_t>(std::llround(s.interval_us));
  if (!options_.overlapped) return s.released_us + interval;
  return std::max(s.released_us, s.arrived_us + interval);
}

void Board::remove(int pipeline) {
  alive_[pipeline] = false;
  std::int64_t least = kRunsOn;  // updates that all of its stages have done still count
  for (int s = 0; s < stages(); ++s) {
    RequestState& state = states_[at(s, pipeline)];
    state.open = false;
    least = std::min(least, state.answered);
  }
  underway_[pipeline] = least;
}

void Board::answer(int stage, int pipeline) {
  RequestState& s = states_[at(stage, pipeline)];
  HETU_ASSERT(s.open);
  s.open = false;
  s.seen = true;
  s.released_us = now_us_;
  ++s.answered;
  ++newest_[at(stage, pipeline)];
  ++counts_[stage];
  underway_[pipeline] =
      std::max(underway_[pipeline], s.answered + updates_before_answer(stages(), stage));
}

// Stage s may start forward u + n - s + 1 as soon as it has the answer to its request u. It would
// wait forever for a forward that no earlier stage starts. The earliest stop that a pipeline can
// learn in time is therefore the largest u + n - s + 1. A decision raises it by at most 1 per
// member. The sum over all pipelines therefore meets the target, or exceeds it by less than one
// group.
void Board::stop_if_due() {
  const std::int64_t sum = std::accumulate(underway_.begin(), underway_.end(), std::int64_t{0});
  if (sum >= target_) stop_soon();
}

// Every stop lies beyond the requests that are open at this time. Each pipeline therefore learns
// its stop from an answer before it gets there.
void Board::stop_soon() {
  if (due_) return;
  due_ = true;
  stop_ = underway_;
}

// A copy is as new as the newest weights that have come into it.
std::vector<double> Board::weigh(int stage, const std::vector<int>& members) {
  std::int64_t newest = 0;
  for (const int p : members) newest = std::max(newest, newest_[at(stage, p)]);
  std::vector<double> weights;
  double sum = 0;
  for (const int p : members) {
    const std::int64_t lag = newest - std::exchange(newest_[at(stage, p)], newest);
    weights.push_back(std::pow(options_.stale_share, static_cast<double>(lag)));
    sum += weights.back();
  }
  if (std::adjacent_find(weights.begin(), weights.end(), std::not_equal_to<>()) == weights.end())
    return {};
  for (double& w : weights) w /= sum;
  return weights;
}

void Board::close(int stage, std::vector<int> members, Reason reason) {
  Decision d;
  d.reason = reason;
  for (const int p : members) {
    d.arrived_us.push_back(state(stage, p).arrived_us);
    answer(stage, p);
  }
  if (options_.weights == Weights::Staleness) d.weights = weigh(stage, members);
  d.stage = stage;
  d.members = std::move(members);
  publish(std::move(d));
}

void Board::close_pair(int stage, int active, int passive) {
  Decision d;
  d.reason = Reason::Drawn;
  d.initiator = active;
  const std::int64_t asked = state(stage, active).arrived_us;
  answer(stage, active);
  d.members = {std::min(active, passive), std::max(active, passive)};
  for (const int p : d.members) d.arrived_us.push_back(p == active ? asked : now_us_);
  d.stage = stage;
  publish(std::move(d));
}

void Board::publish(Decision d) {
  stop_if_due();
  for (const int p : d.members) {
    const RequestState& s = state(d.stage, p);
    d.updates.push_back(done_[p] + s.answered + (s.open ? 1 : 0));
    d.stop_after.push_back(due_ ? done_[p] + stop_[p] : kRunsOn);
  }
  d.serial = serials_[d.stage]++;
  d.closed_us = now_us_;
  decisions_.push_back(std::move(d));
}

}  // namespace hetu::groups
