// The length of an asynchronous run may become known only while it runs: a worker may ask to stop,
// or averaging pipelines may stop at different updates. Therefore no worker runs a step that the
// chief has not granted. The chief grants steps in advance, before any worker needs them:
//
//   steps     0 1 2 3 4 5 6 7 8 9 ...
//   granted   - - - - - -|              at the start
//   chief at 4: grants up to 9          `margin_` repetitions before the end
//   worker at 5: has received the grant and continues without waiting
//
// A grant can be final. All workers then drain after the same step.
#include "executor/loop/run.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "pipeline/ir/run_length.h"

namespace hetu {

Run::Run(Stages& stages, const Interpreter::Links& links, std::size_t fetches, comm::Group group,
         Averager* averager)
    : stages_(stages),
      links_(links),
      channel_(links.transport, std::move(group), fetches + 2),
      averager_(averager) {}

Run::Bound Run::bind(const Schedule& plan) {
  Row row = bind_row(plan, links_.transport.worker(), plan.lowering.pipelines);
  Bound bound;
  bound.ahead = steps_before_answer(plan);
  bound.steps = plan.steps;
  bound.repeat = row.repeat;
  bound.steps_per_repeat = std::max(1, row.shift / plan.micro_batches);
  bound.loop = std::make_unique<Interpreter>(std::move(row), stages_, links_);
  return bound;
}

// Waits for the sends of another plan's loop, before kernels of this one overwrite the buffers that
// they read.
void Run::start(const Schedule& plan, int first_step, TraceRecorder* trace) {
  Bound* next = &of_run_;
  if (by_step_) {
    const auto [at, fresh] = of_steps_.try_emplace(&plan);
    if (fresh) at->second = bind(plan);
    next = &at->second;
  } else {
    of_run_ = bind(plan);
  }
  if (now_ != nullptr && now_ != next && now_->loop) now_->loop->finish();
  now_ = next;
  trace_ = trace;
  first_step_ = first_step;
  started_ = reported_ = 0;
  begun_ = drained_ = false;
}

// A step that failed in between is discarded.
void Run::begin_step(const Schedule& plan, int step, TraceRecorder* trace) {
  HETU_ASSERT(plan.steps == 1);
  by_step_ = true;
  own_.clear();
  start(plan, step, trace);
  wanted_ = 1;
  channel_.begin(step, {1, 1, 1});
}

void Run::forget_steps() {
  HETU_ASSERT(by_step_ && drained_);
  finish();
  now_ = nullptr;
  of_steps_.clear();
}

void Run::begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace) {
  HETU_ASSERT(drained_);
  require(plan.steps <= steps,
          "the plan has {} steps without a flush, but the run has only {}; train at least as many "
          "steps, also between validations, or use a plan of fewer steps",
          plan.steps, steps);
  const int grain = run_grain(plan);
  require(grain > 0 || steps == plan.steps,
          "a plan of {} steps without a repeating body cannot run {} steps", plan.steps, steps);
  start(plan, first_step, trace);
  wanted_ = steps;
  const int lead = granted_at_once(plan);
  margin_ = lead / 2 / now_->steps_per_repeat;
  channel_.begin(first_step, {steps, grain > 0 ? plan.steps + lead : steps, lead});
}

void Run::begin_averaged(const Schedule& plan, int first_step, TraceRecorder* trace) {
  HETU_ASSERT(drained_ && averager_);
  start(plan, first_step, trace);
  wanted_ = 0;
  const std::int64_t known = averager_->stop_after();
  if (known != groups::kRunsOn) {
    channel_.begin(first_step, {static_cast<int>(known), static_cast<int>(known), 1});
    return;
  }
  require(run_grain(plan) == 1,
          "pipelines that stop at different updates need a plan whose body is one step");
  // These steps need no answer; see grant_averaged.
  channel_.begin(first_step, {std::numeric_limits<int>::max(), now_->ahead, 1});
}

// A pipeline learns its last update with the answer to update u, in time for step u +
// steps_before_answer(). The first stage does not begin a later step before that answer
// (groups::Policy::begin_run).
void Run::grant_averaged() {
  const std::int64_t stop = averager_->stop_after();
  if (stop != groups::kRunsOn) {
    channel_.grant_to(static_cast<int>(stop), true);
  } else if (const int next = static_cast<int>(averager_->answered()) + now_->ahead;
             next > channel_.granted()) {
    channel_.grant_to(next, false);
  }
  HETU_ASSERT(channel_.is_final() || started_ < repetitions());
}

int Run::repetitions() const {
  return now_->repeat + (channel_.granted() - now_->steps) / now_->steps_per_repeat;
}

// Receives grants, or decides in worker 0 how far the run goes.
void Run::look_ahead() {
  if (channel_.is_final()) return;
  const int before = channel_.granted();
  if (averager_ && channel_.is_chief()) {
    grant_averaged();
  } else if (channel_.is_chief()) {
    if (asks_to_stop_ || started_ + margin_ >= repetitions()) channel_.grant(asks_to_stop_);
  } else {
    channel_.hear(started_ >= repetitions());
  }
  if (channel_.is_final() || channel_.granted() > before)
    now_->loop->expect({repetitions(), channel_.is_final()});
}

bool Run::advance() {
  if (drained_) return false;
  if (!begun_) {
    begun_ = true;
    const bool asks = by_step_ ? std::exchange(asks_to_stop_, false) : asks_to_stop_;
    asked_in_step_ = asks;
    now_->loop->start(first_step_, {repetitions(), channel_.is_final()}, trace_, asks);
  } else if (look_ahead(); started_ < repetitions()) {
    now_->loop->repeat();
    ++started_;
  } else if (channel_.is_final()) {
    now_->loop->drain();
    if (!by_step_) {
      now_->loop->finish();
      asks_to_stop_ = false;
    }
    drained_ = true;
  }
  take_reports();
  return true;
}

void Run::finish() {
  if (now_ != nullptr && now_->loop) now_->loop->finish();
}

void Run::abandon() {
  asks_to_stop_ = asks_to_stop_ || asked_in_step_;
  now_ = nullptr;
  of_steps_.clear();
  of_run_ = {};
  own_.clear();
  drained_ = true;
}

void Run::take_reports() {
  for (StepReport& report : stages_.take_reports()) {
    if (!by_step_) {
      std::vector<double> values = report.fetches;
      values.push_back(report.squares);
      values.push_back(asks_to_stop_ ? 1 : 0);
      channel_.report(report.step - first_step_, std::move(values));
    }
    if (gives_own()) own_.push_back(std::move(report));
  }
}

std::optional<StepReport> Run::next_report() {
  // The last granted report is held back until it is known whether it is the last of the run.
  if (!channel_.is_final() && reported_ + 1 >= channel_.granted()) return std::nullopt;
  if (gives_own()) {
    if (own_.empty()) return std::nullopt;
    StepReport report = std::move(own_.front());
    own_.pop_front();
    ++reported_;
    return report;
  }
  std::optional<std::vector<double>> sums = channel_.next_sums(drained_);
  if (!sums) return std::nullopt;
  asks_to_stop_ = asks_to_stop_ || (!drained_ && sums->back() > 0);
  sums->pop_back();
  StepReport report{first_step_ + reported_++, {}, sums->back()};
  sums->pop_back();
  report.fetches = std::move(*sums);
  return report;
}

}  // namespace hetu
