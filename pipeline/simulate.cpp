#include "pipeline/simulate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "graph/base/error.h"
#include "pipeline/audit.h"
#include "pipeline/timing.h"

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
        timing_(schedule_, costs, options) {
    const int rows = workers_ * progress.pipelines();
    end_.resize(static_cast<std::size_t>(index_.size()) * progress.pipelines());
    free_.assign(rows, 0);
    network_free_.assign(rows, 0);
    computed_.assign(rows, 0);
    collective_end_.assign(progress.collectives().size(), 0);
    result_.workers.resize(rows);
    for (WorkerTiming& w : result_.workers) w.start = -1;
    window_.resize(progress.pipelines());
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
    Simulation& r = result_;
    double busy = 0;
    for (WorkerTiming& w : r.workers) {
      w.start = std::max(w.start, 0.0);
      busy += w.busy;
      r.ideal = std::max(r.ideal, w.busy);
      r.makespan = std::max(r.makespan, w.end);
      r.span = std::max(r.span, w.end - w.start);
    }
    if (r.makespan > 0) r.bubble_fraction = 1 - busy / (r.makespan * r.workers.size());
    if (r.ideal > 0) r.bubble_overhead = (r.makespan - r.ideal) / r.ideal;
    if (r.span > 0) r.span_bubble_rate = 1 - r.ideal / r.span;
    finish_rates();
    sort_events();
    return std::move(result_);
  }

 private:
  // The middle half of worker 0's backwards, per pipeline.
  struct Window {
    int backwards = 0;
    double from = 0, to = 0, busy = 0;
  };

  // By worker and time. Millions come nearly in order of time: each is moved once to its worker's.
  void sort_events() {
    std::vector<TraceEvent>& events = result_.events;
    std::vector<std::size_t> end(result_.workers.size() + 1, 0);
    for (const TraceEvent& e : events) ++end[e.worker + 1];
    std::partial_sum(end.begin(), end.end(), end.begin());
    std::vector<TraceEvent> sorted(events.size());
    std::vector<std::size_t> next(end.begin(), end.end() - 1);
    for (TraceEvent& e : events) sorted[next[e.worker]++] = std::move(e);
    const auto earlier = [](const TraceEvent& a, const TraceEvent& b) {
      return a.start_us < b.start_us;
    };
    for (std::size_t w = 0; w + 1 < end.size(); ++w) {
      const auto first = sorted.begin() + static_cast<std::ptrdiff_t>(end[w]);
      const auto last = sorted.begin() + static_cast<std::ptrdiff_t>(end[w + 1]);
      if (!std::is_sorted(first, last, earlier)) std::stable_sort(first, last, earlier);
    }
    events = std::move(sorted);
  }

  std::size_t cell(int pipeline, int position) const {
    return static_cast<std::size_t>(pipeline) * index_.size() + position;
  }

  bool asynchronous() const { return schedule_.most_versions != 1; }

  // When an instruction of a worker may start as far as one thing it waits for is concerned.
  double ready_at(int pipeline, int worker, const Progress::Need& need, const Instr& user) const {
    if (need.worker < 0) return collective_end_[need.done - index_.size()];
    const double end = end_[cell(pipeline, need.done)];
    if (need.worker == worker || !(is_recv(user.kind) || is_compute(user.kind))) return end;
    // From another worker comes nothing but a message: its send, or, if not lowered, its compute.
    const int base = pipeline * workers_;
    return end +
           timing_.message(index_.at(need.done), user.stage, base + need.worker, base + worker);
  }

  // A send holds up nobody; its event lasts as long as the message travels.
  void note_message(int pipeline, int row, int position, double at) {
    if (!options_.events) return;
    const Instr& i = index_.at(position);
    const int peer = index_.graph().peer(i);
    const int to = pipeline * workers_ + index_.graph().worker(peer);
    add_event(row, position, at, timing_.message(i, peer, row, to));
  }

  // Books one instruction that starts at `at`; returns how long it takes.
  double run_one(int pipeline, int row, int position, double at) {
    const Instr& i = index_.at(position);
    if (!is_compute(i.kind)) {
      if (is_send(i.kind)) note_message(pipeline, row, position, at);
      if (i.kind != Kind::Update) return 0;
      const double time = timing_.update(i, row);
      add_event(row, position, at, time);
      return time;
    }
    const double time = timing_.compute(i, row, computed_[row]++, at);
    WorkerTiming& w = result_.workers[row];
    if (w.start < 0) w.start = at;
    w.busy += time;
    w.end = at + time;
    if (row % workers_ == 0) note_backward(pipeline, i, at, time);
    add_event(row, position, at, time);
    return time;
  }

  void note_backward(int pipeline, const Instr& i, double at, double time) {
    Window& window = window_[pipeline];
    const int all = total_micros(schedule_), first = all / 4, last = 3 * all / 4;
    if (window.backwards >= first && window.backwards < last) window.busy += time;
    if (i.kind != Kind::Backward && i.kind != Kind::InputGrad) return;
    ++window.backwards;
    if (window.backwards == first) window.from = at + time;
    if (window.backwards == last) window.to = at + time;
  }

  void add_event(int row, int position, double at, double time) {
    if (!options_.events) return;
    const Instr& i = index_.at(position);
    const double us = unit_us(costs_);
    const int micro = i.micro >= 0 ? index_.graph().forward_micro(i.micro) : -1;
    const int step = micro >= 0 ? micro / schedule_.micro_batches : 0;
    result_.events.push_back({TraceSource::Predicted, row, kind_name(i.kind), i.stage, i.micro,
                              i.part, step, at * us, time * us});
  }

  // A synchronous step has its fill and drain in it; an asynchronous run only at its ends.
  void finish_rates() {
    Simulation& r = result_;
    const int all = total_micros(schedule_);
    if (!asynchronous()) {
      if (r.step_time > 0) r.throughput = all * progress_.pipelines() / r.step_time;
      return;
    }
    r.asynchronous = true;
    const Window& first = window_[0];
    if (first.to > first.from) r.steady_bubble = 1 - first.busy / (first.to - first.from);
    const int counted = 3 * all / 4 - all / 4;
    for (const Window& w : window_)
      if (w.to > w.from) r.throughput += counted / (w.to - w.from);
  }

  Progress& progress_;
  const PlanIndex& index_;
  const Schedule& schedule_;
  const Costs& costs_;
  const SimulateOptions& options_;
  const int workers_;
  const Timing timing_;
  std::vector<double> end_;  // per pipeline and position
  // Per row:
  std::vector<double> free_, network_free_;
  std::vector<std::int64_t> computed_;
  std::vector<double> collective_end_;
  std::vector<Window> window_;  // per pipeline
  Simulation result_;
};

void check_options(const SimulateOptions& o, const Schedule& schedule) {
  const auto number = [](double x, const char* what) {
    require(std::isfinite(x) && x >= 0, "{} must be a finite number >= 0, got {}", what, x);
  };
  number(o.jitter, "jitter");
  number(o.hetero, "hetero");
  const int pipelines = schedule.lowering.pipelines;
  const int rows = static_cast<int>(schedule.workers.size()) * pipelines;
  for (const Slowdown& s : o.slow) {
    require(std::isfinite(s.factor) && s.factor > 0, "slow: factor must be above 0, got {}",
            s.factor);
    require(s.pipeline < pipelines, "slow: pipeline {}, but the pipelines are 0…{}", s.pipeline,
            pipelines - 1);
    require(s.worker < rows, "slow: worker {}, but the workers are 0…{}", s.worker, rows - 1);
    require(s.from <= s.to, "slow: from {} is after to {}", s.from, s.to);
  }
}

// Largest number of bytes held on each worker of one pipeline: weights in their versions, and what
// each micro-batch keeps between F and the end of its backward.
std::vector<double> peak_bytes(const PlanIndex& index, const Costs& costs, const VerifyReport& r) {
  const Schedule& s = index.schedule();
  const double share = s.half_micros ? 0.25 : 0.5;
  std::vector<double> peaks;
  for (int w = 0; w < index.workers(); ++w) {
    double held = 0;
    for (std::size_t i = 0; i < s.placements.size(); ++i)
      if (index.graph().worker(static_cast<int>(i)) == w)
        held += stage_cost(costs, s.placements[i].model_stage).weight_bytes *
                r.stages[i].weight_versions;
    double most = held;
    for (int p = index.row_begin(w); p < index.row_end(w); ++p) {
      const Instr& i = index.at(p);
      if (!is_compute(i.kind) || i.kind == Kind::Recompute) continue;
      const double bytes = stage_cost(costs, s.placements[i.stage].model_stage).activation_bytes;
      if (i.kind == Kind::Forward)
        held += bytes;
      else
        held -= bytes * share * (i.kind == Kind::Backward ? 2 : 1);
      most = std::max(most, held);
    }
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options) {
  const int pipelines = schedule.lowering.pipelines;
  check_costs(costs, schedule, pipelines);
  check_options(options, schedule);
  const PlanIndex index(schedule);
  Progress progress(index, options.send_slots, pipelines);
  Simulator simulator(progress, costs, options);
  const bool whole = progress.run(simulator);
  if (!whole && !options.partly) fail_deadlock(progress, options.send_slots);
  if (options.partly) return simulator.finish();
  const VerifyReport report = audit_rows(index);
  const std::vector<double> bytes = peak_bytes(index, costs, report);
  Simulation result = simulator.finish();
  result.method = schedule.method;
  result.stages = schedule.stages;
  result.micro_batches = schedule.micro_batches;
  result.steps = schedule.steps;
  result.pipelines = pipelines;
  result.time_unit = costs.unit;
  const int workers = index.workers();
  for (std::size_t row = 0; row < result.workers.size(); ++row) {
    WorkerTiming& w = result.workers[row];
    const int worker = static_cast<int>(row) % workers;
    w.peak_activations = report.peak_activations[worker];
    w.peak_bytes = bytes[worker];
    for (int s = 0; s < index.graph().stages(); ++s) {
      if (index.graph().worker(s) != worker) continue;
      w.stages.push_back(s);
      w.weight_versions = std::max(w.weight_versions, report.stages[s].weight_versions);
    }
  }
  return result;
}

}  // namespace hetu
