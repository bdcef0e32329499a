#include "executor/rehearse.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "executor/comm/collective.h"
#include "executor/comm/inproc.h"
#include "executor/comm/tag_kinds.h"
#include "executor/precedence.h"
#include "graph/base/error.h"

namespace hetu {
namespace {

using Record = TraceRecorder::Record;

// Wakes of this thread come within a microsecond instead of the usual 50.
class SharpTimer {
 public:
  SharpTimer() : before_(prctl(PR_GET_TIMERSLACK)) { prctl(PR_SET_TIMERSLACK, 1UL); }
  ~SharpTimer() { prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(std::max(1, before_))); }
  SharpTimer(const SharpTimer&) = delete;
  SharpTimer& operator=(const SharpTimer&) = delete;

 private:
  int before_;
};

class Rehearser {
 public:
  Rehearser(const Schedule& plan, const Costs& costs, const Pace& pace, comm::Transport& transport)
      : plan_(plan),
        pace_(pace),
        transport_(transport),
        everyone_(comm::everyone(transport)),
        runner_(plan, costs, pace, transport),
        reducer_(transport),
        loop_(bind_row(plan, transport.worker(), plan.lowering.pipelines), runner_,
              {transport, reducer_}) {
    for (int w = 0; w < transport.workers(); ++w) {
      const auto& program = plan.workers[static_cast<std::size_t>(w) % plan.workers.size()];
      record_bytes_.push_back(unroll(program).size() * sizeof(Record));
    }
  }

  MeasuredStep run(int step) {
    recorder_.clear();
    const std::int64_t start_ns = common_start(step);
    runner_.start_at(start_ns);
    loop_.run_step(step, &recorder_);
    loop_.finish();
    return gather(step, start_ns);
  }

 private:
  // A moment shortly ahead, the same for all workers that share a clock with worker 0; the others
  // start when they hear.
  std::int64_t common_start(int step) {
    comm::barrier(transport_, everyone_,
                  {comm::make_tag(kControlTag, 0, 0, 0, step), "the start of a rehearsed step"});
    std::vector<std::size_t> sizes(everyone_.size(), 0);
    sizes[0] = sizeof(std::int64_t);
    const std::int64_t ahead = 5'000'000 + 1'000'000 * static_cast<std::int64_t>(sizes.size());
    const std::int64_t mine = comm::now_ns() + ahead;
    std::int64_t start_ns = mine;
    comm::all_gather_bytes(
        transport_, everyone_, sizes, &mine, &start_ns,
        {comm::make_tag(kControlTag, 1, 0, 0, step), "the start of a rehearsed step"});
    return transport_.same_clock(0) ? start_ns : comm::now_ns();
  }

  MeasuredStep gather(int step, std::int64_t start_ns) {
    std::vector<Record> own = recorder_.records();
    for (Record& r : own) {
      r.start_ns -= start_ns;
      r.end_ns -= start_ns;
    }
    const auto me = static_cast<std::size_t>(transport_.worker());
    HETU_ASSERT(own.size() * sizeof(Record) == record_bytes_[me]);
    const std::size_t total =
        std::accumulate(record_bytes_.begin(), record_bytes_.end(), std::size_t{0});
    std::vector<Record> all(total / sizeof(Record));
    comm::all_gather_bytes(
        transport_, everyone_, record_bytes_, own.data(), all.data(),
        {comm::make_tag(kControlTag, 2, 0, 0, step), "the records of a rehearsed step"});
    return measure(all);
  }

  MeasuredStep measure(const std::vector<Record>& all) const {
    MeasuredStep step;
    std::size_t at = 0;
    for (std::size_t w = 0; w < record_bytes_.size(); ++w) {
      TraceRecorder row;
      for (std::size_t n = record_bytes_[w] / sizeof(Record); n > 0; --n, ++at) {
        const Record& r = all[at];
        row.add(r.instr, plan_step(r.instr), r.start_ns, r.end_ns);
        const double end = static_cast<double>(r.end_ns) / pace_.unit_ns;
        if (is_compute(r.instr.kind)) step.makespan = std::max(step.makespan, end);
        if (!is_send(r.instr.kind) && !is_recv(r.instr.kind))
          step.step_time = std::max(step.step_time, end);
      }
      auto events = row.events(static_cast<int>(w), 0);
      std::move(events.begin(), events.end(), std::back_inserter(step.events));
    }
    step.throughput = throughput(step);
    return step;
  }

  int plan_step(const Instr& instr) const {
    if (instr.micro < 0) return 0;
    return (plan_.half_micros ? instr.micro / 2 : instr.micro) / plan_.micro_batches;
  }

  // As Simulation::throughput: a synchronous step whole, an asynchronous run between the first and
  // the last quarter of each pipeline's backwards on its first worker.
  double throughput(const MeasuredStep& step) const {
    const int all = total_micros(plan_), pipelines = plan_.lowering.pipelines;
    if (plan_.most_versions == 1) return all * pipelines / step.step_time;
    const int first = all / 4, last = 3 * all / 4;
    double sum = 0;
    for (int d = 0; d < pipelines; ++d) {
      std::vector<double> ends;
      for (const TraceEvent& e : step.events) {
        if (e.worker == d * static_cast<int>(plan_.workers.size()) &&
            (e.kind == kind_name(Kind::Backward) || e.kind == kind_name(Kind::InputGrad)))
          ends.push_back((e.start_us + e.duration_us) * 1e3 / pace_.unit_ns);
      }
      std::sort(ends.begin(), ends.end());
      if (first < 1 || last <= first || static_cast<int>(ends.size()) < last) continue;
      sum += (last - first) / (ends[last - 1] - ends[first - 1]);
    }
    return sum;
  }

  const Schedule& plan_;
  Pace pace_;
  comm::Transport& transport_;
  comm::Group everyone_;
  TimedRunner runner_;
  comm::Reducer reducer_;
  Interpreter loop_;
  TraceRecorder recorder_;
  std::vector<std::size_t> record_bytes_;  // per worker
};

}  // namespace

void check_workers(const Schedule& lowered, int workers) {
  const int pipelines = lowered.lowering.pipelines;
  const int needed = static_cast<int>(lowered.workers.size()) * pipelines;
  require(workers == needed,
          "the plan is for {} workers ({} pipelines of {}), the job has {}; start {} workers",
          needed, pipelines, lowered.workers.size(), workers, needed);
}

namespace {

Rehearsal rehearse_as_worker(const Schedule& lowered, const Costs& costs, const Pace& pace,
                             int repeat, comm::Transport& transport) {
  check_workers(lowered, transport.workers());
  require(repeat >= 1, "repeat must be at least 1, got {}", repeat);
  Rehearsal result;
  SimulateOptions options = pace.disturb;
  options.events = true;
  result.predicted = simulate(lowered, costs, options);
  result.unit_us = pace.unit_ns * 1e-3;
  result.payload_bytes = pace.payload_bytes;
  const SharpTimer timer;
  Rehearser rehearser(lowered, costs, pace, transport);
  rehearser.run(0);
  std::vector<MeasuredStep> steps;
  for (int r = 1; r <= repeat; ++r) {
    steps.push_back(rehearser.run(r));
    result.step_times.push_back(steps.back().step_time);
  }
  std::sort(steps.begin(), steps.end(),
            [](const auto& a, const auto& b) { return a.step_time < b.step_time; });
  result.measured = std::move(steps[(steps.size() - 1) / 2]);
  if (result.predicted.step_time > 0)
    result.ratio = result.measured.step_time / result.predicted.step_time;
  return result;
}

}  // namespace

Rehearsal rehearse(const Schedule& lowered, const Costs& costs, const Pace& pace, int repeat,
                   comm::Transport& transport) {
  const Precedence precedence;
  return rehearse_as_worker(lowered, costs, pace, repeat, transport);
}

Rehearsal rehearse_in_threads(const Schedule& lowered, const Costs& costs, const Pace& pace,
                              int repeat, const comm::Options& options) {
  const int workers = static_cast<int>(lowered.workers.size()) * lowered.lowering.pipelines;
  auto transports = comm::make_inproc(workers, options);
  const Precedence precedence;  // of the threads to come too
  Rehearsal result;
  std::vector<std::exception_ptr> errors(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      try {
        Rehearsal own = rehearse_as_worker(lowered, costs, pace, repeat, *transports[w]);
        if (w == 0) result = std::move(own);
      } catch (const std::exception& e) {
        errors[w] = std::current_exception();
        transports[w]->abort(1, e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return result;
}

}  // namespace hetu
