// The simulator needs no queue of events. Progress reports each instruction after everything that
// the instruction waits for. An instruction therefore starts at the latest of these times: the end
// of its row's previous instruction, the ends of the local results and collectives that it needs,
// and the arrivals of its messages. Its end follows from the costs. One pass over the plan gives
// all times.
//
// This works because no choice depends on time. Runs in which it does, with servers or with
// averages in groups, use RowRun.
#include "pipeline/simulate/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "pipeline/cost/timing.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/simulate/server_run.h"
#include "pipeline/simulate/simulate_figures.h"
#include "pipeline/verify/audit.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

class Simulator : public Progress::Listener {
 public:
  Simulator(Progress& progress, const Costs& costs, const SimulateOptions& options)
      : progress_(progress),
        index_(progress.index()),
        schedule_(index_.schedule()),
        costs_(costs),
        options_(options),
        workers_(index_.workers()),
        timing_(schedule_, costs, options),
        middle_(progress.pipelines(), MiddleHalf(total_micros(schedule_))) {
    const int rows = workers_ * progress.pipelines();
    end_.resize(static_cast<std::size_t>(index_.size()) * progress.pipelines());
    free_.assign(rows, 0);
    network_free_.assign(rows, 0);
    computed_.assign(rows, 0);
    collective_end_.assign(progress.collectives().size(), 0);
    updates_.assign(rows, 0);
    stages_on_.assign(workers_, 0);
    for (const Placement& p : schedule_.placements) ++stages_on_[p.workers[0]];
    result_.workers.resize(rows);
    for (WorkerTiming& w : result_.workers) w.start = -1;
  }

  void on_run(int pipeline, int position, int count) override {
    const int worker = index_.worker_of(position), row = pipeline * workers_ + worker;
    double start = free_[row];
    for (int p = position; p < position + count; ++p) {
      for (const Progress::Need& need : progress_.needs(p)) {
        if (need.done >= position && need.done < p) continue;
        start = std::max(start, ready_at(pipeline, worker, need, index_.at(p)));
      }
    }
    double at = start;
    for (int p = position; p < position + count; ++p) at += run_one(pipeline, row, p, at);
    for (int p = position; p < position + count; ++p) end_[cell(pipeline, p)] = at;
    free_[row] = at;
    result_.step_time = std::max(result_.step_time, at);
  }

  void on_collective(int collective) override {
    const std::vector<int>& posts = progress_.collectives()[collective].posts;
    double start = 0;
    for (int d = 0; d < progress_.pipelines(); ++d) {
      for (const int p : posts)
        start =
            std::max({start, end_[cell(d, p)], network_free_[d * workers_ + index_.worker_of(p)]});
    }
    const double end = start + timing_.collective(index_.at(posts[0]));
    collective_end_[collective] = end;
    for (int d = 0; d < progress_.pipelines(); ++d) {
      for (const int p : posts) {
        const int row = d * workers_ + index_.worker_of(p);
        network_free_[row] = end;
        add_event(row, p, start, end - start);
      }
    }
    result_.step_time = std::max(result_.step_time, end);
  }

  Simulation finish() {
    add_figures(result_);
    finish_rates();
    sort_events(result_);
    return std::move(result_);
  }

 private:
  std::size_t cell(int pipeline, int position) const {
    return static_cast<std::size_t>(pipeline) * index_.size() + position;
  }

  // Returns the earliest start of an instruction of a worker, as far as one thing that it waits for
  // is concerned.
  double ready_at(int pipeline, int worker, const Progress::Need& need, const Instr& user) const {
    if (need.worker < 0) return collective_end_[need.done - index_.size()];
    const double end = end_[cell(pipeline, need.done)];
    if (need.worker == worker || !(is_recv(user.kind) || is_compute(user.kind))) return end;
    // A result of another worker arrives only by a message: by its send, or directly from its
    // compute if the plan is not lowered.
    const int base = pipeline * workers_;
    return end +
           timing_.message(index_.at(need.done), user.stage, base + need.worker, base + worker);
  }

  // Adds the event of a send. A send takes no time of its worker. Its event lasts as long as the
  // message travels.
  void note_message(int pipeline, int row, int position, double at) {
    if (!options_.events) return;
    const Instr& i = index_.at(position);
    const int peer = index_.graph().peer(i);
    const int to = pipeline * workers_ + index_.graph().worker(peer);
    add_event(row, position, at, timing_.message(i, peer, row, to));
  }

  // Records one instruction that starts at `at`, and returns its duration.
  double run_one(int pipeline, int row, int position, double at) {
    const Instr& i = index_.at(position);
    if (!is_compute(i.kind)) {
      if (is_send(i.kind)) note_message(pipeline, row, position, at);
      if (is_second_order(i.kind)) return run_second_order(row, position, at);
      if (i.kind != Kind::Update) return 0;
      const double time = timing_.update(i, row);
      add_event(row, position, at, time);
      ++updates_[row];
      return time;
    }
    const double time = timing_.compute(i, row, computed_[row]++, at);
    WorkerTiming& w = result_.workers[row];
    if (w.start < 0) w.start = at;
    w.busy += time;
    w.end = at + time;
    if (row % workers_ == 0) middle_[pipeline].note(i, at, time);
    add_event(row, position, at, time);
    return time;
  }

  double run_second_order(int row, int position, double at) {
    const double time = timing_.second_order(index_.at(position), row);
    WorkerTiming& w = result_.workers[row];
    w.busy += time;
    w.end = std::max(w.end, at + time);
    add_event(row, position, at, time);
    return time;
  }

  // Returns the step of an instruction: by its micro-batch, or by the row's updates so far in a
  // plan of several steps with flushes.
  int step_of(const Instr& i, int row) const {
    if (schedule_.lowering.flush && schedule_.steps > 1)
      return updates_[row] / std::max(1, stages_on_[row % workers_]);
    return i.micro >= 0 ? index_.graph().forward_micro(i.micro) / schedule_.micro_batches : 0;
  }

  void add_event(int row, int position, double at, double time) {
    if (!options_.events) return;
    const Instr& i = index_.at(position);
    const double us = unit_us(costs_);
    const int step = step_of(i, row);
    result_.events.push_back({TraceSource::Predicted, row, kind_name(i.kind), i.stage, i.micro,
                              i.part, step, at * us, time * us});
  }

  // The throughput of a synchronous step includes fill and drain. An asynchronous run has them only
  // at its ends, so its throughput leaves them out.
  void finish_rates() {
    Simulation& r = result_;
    const int all = total_micros(schedule_);
    if (!is_asynchronous(schedule_)) {
      if (r.step_time > 0) r.throughput = all * progress_.pipelines() / r.step_time;
      return;
    }
    add_rates(r, middle_);
  }

  Progress& progress_;
  const PlanIndex& index_;
  const Schedule& schedule_;
  const Costs& costs_;
  const SimulateOptions& options_;
  const int workers_;
  const Timing timing_;
  std::vector<double> end_;  // end per pipeline and position
  // Per row:
  std::vector<double> free_, network_free_;
  std::vector<std::int64_t> computed_;
  std::vector<double> collective_end_;
  std::vector<int> updates_;        // updates so far
  std::vector<int> stages_on_;      // by worker: number of its placements
  std::vector<MiddleHalf> middle_;  // for worker 0 of each pipeline
  Simulation result_;
};

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options) {
  const int pipelines = schedule.lowering.pipelines;
  check_costs(costs, schedule, pipelines);
  check_stragglers(options, schedule.lowering.pipelines,
                   static_cast<int>(schedule.workers.size()) * schedule.lowering.pipelines);
  if (schedule.lowering.has_servers()) return simulate_servers(schedule, costs, options);
  const PlanIndex index(schedule);
  Progress progress(index, options.send_slots, pipelines);
  Simulator simulator(progress, costs, options);
  const bool whole = progress.run(simulator);
  if (!whole && !options.partly) fail_deadlock(progress, options.send_slots);
  if (options.partly) return simulator.finish();
  Simulation result = simulator.finish();
  describe(result, index, costs);
  return result;
}

// With servers each pipeline runs by itself, so one pipeline is simulated. Pushes and pulls take no
// slot.
int ample_send_slots(const Schedule& lowered, const Costs& costs) {
  constexpr double kSame = 1 + 1e-9;
  const PlanIndex index(lowered);
  const int together = lowered.lowering.has_servers() ? 1 : lowered.lowering.pipelines;
  const auto makespan = [&](int slots) {
    Progress progress(index, slots, together);
    const SimulateOptions without_stragglers;
    Simulator simulator(progress, costs, without_stragglers);
    return progress.run(simulator) ? simulator.finish().makespan
                                   : std::numeric_limits<double>::infinity();
  };
  check_costs(costs, lowered, lowered.lowering.pipelines);
  const double most = makespan(kUnboundedSlots) * kSame;
  if (std::isinf(most)) verify(lowered);
  const auto ample = [&](int slots) { return makespan(slots) <= most; };
  // Doubles `high` until ample(high) holds. The binary search below keeps ample(high) true.
  int low = least_send_slots(lowered), high = low;
  while (!ample(high)) {
    low = high + 1;
    high *= 2;
  }
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ample(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

}  // namespace hetu
