#include "executor/repeated_run.h"

#include <algorithm>
#include <numeric>

#include "graph/base/error.h"

namespace hetu {

int run_grain(const Schedule& plan) {
  int shift = plan.micro_batches;
  for (const Program& p : plan.workers) {
    if (p.repeat <= 0 || p.shift <= 0) return 0;
    shift = std::lcm(shift, p.shift);
  }
  return shift / plan.micro_batches;
}

RepeatedRun::RepeatedRun(TrainRunner& runner, const Interpreter::Links& links, std::size_t fetches)
    : runner_(runner), links_(links), channel_(links.transport, fetches + 2) {}

void RepeatedRun::begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace) {
  HETU_ASSERT(drained_ && plan.steps <= steps);
  const int grain = run_grain(plan);
  require(grain > 0 || steps == plan.steps, "a plan of {} steps whose body does not repeat runs {}",
          plan.steps, steps);
  const int pipelines = plan.lowering.pipelines;
  Row row = bind_row(plan, links_.transport.worker(), pipelines);
  plan_steps_ = plan.steps;
  plan_repeat_ = row.repeat;
  steps_per_repeat_ = std::max(1, row.shift / plan.micro_batches);
  loop_ = std::make_unique<Interpreter>(std::move(row), runner_, links_);
  trace_ = trace;
  wanted_ = steps;
  first_step_ = first_step;
  started_ = reported_ = 0;
  begun_ = drained_ = false;
  // Worker 0 grants more well before the others can have come so far: between the first forward of
  // a step and its last update lie fewer than 2 P steps.
  const int up = std::max(1, grain);
  const int lead = (4 * plan.stages + 8 + up - 1) / up * up;
  margin_ = lead / 2 / steps_per_repeat_;
  channel_.begin(first_step, {steps, grain > 0 ? plan.steps + lead : steps, lead});
}

int RepeatedRun::repetitions() const {
  return plan_repeat_ + (channel_.granted() - plan_steps_) / steps_per_repeat_;
}

// Learns, or decides in worker 0, how far the run goes.
void RepeatedRun::look_ahead() {
  if (channel_.is_final()) return;
  const int before = channel_.granted();
  if (links_.transport.worker() == 0) {
    if (asks_to_stop_ || started_ + margin_ >= repetitions()) channel_.grant(asks_to_stop_);
  } else {
    channel_.hear(started_ >= repetitions());
  }
  if (channel_.is_final() || channel_.granted() > before)
    loop_->expect({repetitions(), channel_.is_final()});
}

bool RepeatedRun::advance() {
  if (drained_) return false;
  if (!begun_) {
    begun_ = true;
    loop_->start(first_step_, {repetitions(), channel_.is_final()}, trace_);
  } else if (look_ahead(); started_ < repetitions()) {
    loop_->repeat();
    ++started_;
  } else if (channel_.is_final()) {
    loop_->drain();
    loop_->finish();
    drained_ = true;
    asks_to_stop_ = false;
  }
  send_reports();
  return true;
}

void RepeatedRun::send_reports() {
  for (StepReport& report : runner_.take_reports()) {
    std::vector<double> values = report.fetches;
    values.push_back(report.squares);
    values.push_back(asks_to_stop_ ? 1 : 0);
    channel_.report(report.step - first_step_, std::move(values));
    if (links_.transport.worker() != 0) own_.push_back(std::move(report));
  }
}

std::optional<StepReport> RepeatedRun::next_report() {
  if (links_.transport.worker() != 0) {
    if (own_.empty()) return std::nullopt;
    StepReport report = std::move(own_.front());
    own_.pop_front();
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
