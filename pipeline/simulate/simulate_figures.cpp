#include "pipeline/simulate/simulate_figures.h"

#include <algorithm>
#include <numeric>

#include "pipeline/verify/audit.h"

namespace hetu {
namespace {

// Returns the change, by a compute instruction, of the bytes that a micro-batch keeps on its stage
// from its F to the end of its backward. An I frees nothing: a compiled stage keeps what F saved
// until the W has run. If the stage is recomputed, F keeps only the input and R adds the remaining
// bytes.
double kept_bytes(const Schedule& s, const Costs& costs, const Instr& i, bool recomputed,
                  int pipeline) {
  const double half = s.half_micros ? 0.5 : 1;
  const int stage = s.placements[i.stage].model_stage;
  const double all = stage_cost(costs, stage, pipeline).activation_bytes;
  const double input =
      recomputed ? std::min(all, stage > 0 ? stage_cost(costs, stage - 1, pipeline).bytes_out : 0)
                 : all;
  switch (i.kind) {
    case Kind::Forward:
      return input;
    case Kind::Recompute:
      return (all - input) * half;
    case Kind::Backward:
    case Kind::WeightGrad:
      return -all * half;
    default:
      return 0;
  }
}

// Returns a flag per placement: whether the plan recomputes it.
std::vector<char> recomputed_stages(const Schedule& s) {
  std::vector<char> stages(s.placements.size(), 0);
  any_instr(s, [&](const Instr& i) {
    if (i.kind == Kind::Recompute) stages[i.stage] = 1;
    return false;
  });
  return stages;
}

// Returns the largest number of bytes held on each worker of a pipeline: weights in all their
// versions, and the values that micro-batches keep.
std::vector<double> peak_bytes(const PlanIndex& index, const Costs& costs, const VerifyReport& r,
                               int pipeline) {
  const Schedule& s = index.schedule();
  const std::vector<char> recomputed = recomputed_stages(s);
  std::vector<double> peaks;
  for (int w = 0; w < index.workers(); ++w) {
    double held = 0;
    for (std::size_t i = 0; i < s.placements.size(); ++i)
      if (index.graph().worker(static_cast<int>(i)) == w)
        held += stage_cost(costs, s.placements[i].model_stage, pipeline).weight_bytes *
                r.stages[i].weight_versions;
    double most = held;
    for (int p = index.row_begin(w); p < index.row_end(w); ++p) {
      const Instr& i = index.at(p);
      if (!is_compute(i.kind)) continue;
      held += kept_bytes(s, costs, i, recomputed[i.stage] != 0, pipeline);
      most = std::max(most, held);
    }
    peaks.push_back(most);
  }
  return peaks;
}

}  // namespace

void MiddleHalf::note(const Instr& i, double at, double time) {
  if (backwards_ >= first_ && backwards_ < last_) busy_ += time;
  if (i.kind != Kind::Backward && i.kind != Kind::InputGrad) return;
  ++backwards_;
  if (backwards_ == first_) from_ = at + time;
  if (backwards_ == last_) to_ = at + time;
}

void add_rates(Simulation& r, const std::vector<MiddleHalf>& middle) {
  r.asynchronous = true;
  r.steady_bubble = middle.front().bubble();
  for (const MiddleHalf& m : middle) r.throughput += m.rate();
}

void add_figures(Simulation& r) {
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
}

void sort_events(Simulation& simulation) {
  std::vector<TraceEvent>& events = simulation.events;
  std::vector<std::size_t> end(simulation.workers.size() + 1, 0);
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

void describe(Simulation& result, const PlanIndex& index, const Costs& costs) {
  const Schedule& schedule = index.schedule();
  const VerifyReport report = audit_rows(index);
  // peaks of one pipeline; pipelines differ only if each has its own cuts
  std::vector<double> bytes;
  result.method = schedule.method;
  result.stages = schedule.stages;
  result.micro_batches = schedule.micro_batches;
  result.steps = schedule.steps;
  result.pipelines = schedule.lowering.pipelines;
  result.time_unit = costs.unit;
  const int workers = index.workers();
  for (std::size_t row = 0; row < result.workers.size(); ++row) {
    WorkerTiming& w = result.workers[row];
    const int worker = static_cast<int>(row) % workers;
    if (row == 0 || (worker == 0 && !costs.cuts.empty()))
      bytes = peak_bytes(index, costs, report, static_cast<int>(row) / workers);
    w.peak_activations = report.peak_activations[worker];
    w.peak_bytes = bytes[worker];
    for (int s = 0; s < index.graph().stages(); ++s) {
      if (index.graph().worker(s) != worker) continue;
      w.stages.push_back(s);
      w.weight_versions = std::max(w.weight_versions, report.stages[s].weight_versions);
    }
  }
}

}  // namespace hetu
