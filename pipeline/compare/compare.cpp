#include "pipeline/compare/compare.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "pipeline/cost/averages.h"
#include "pipeline/verify/verify.h"

namespace hetu {
namespace {

/// Means over the included runs.
class Comparer {
 public:
  Comparer(const PlanIndex& index, const Progress& progress, const std::vector<RunTimes>& runs)
      : index_(index), progress_(progress), runs_(runs) {}

  std::vector<ComparedRun> steps() const {
    std::vector<ComparedRun> steps;
    for (const RunTimes& run : runs_) {
      steps.push_back({run.first_step,
                       {run.makespan_us(kPlan, index_), run.makespan_us(kRun, index_)},
                       {run.step_us(kPlan, index_), run.step_us(kRun, index_)}});
    }
    return steps;
  }

  std::vector<ComparedKind> kinds() const {
    std::map<Kind, ComparedKind> sums;
    each([&](const RunTimes& run, int row, int position, std::int64_t cell) {
      const Kind kind = index_.at(position).kind;
      const Span &plan = run.at(kPlan, cell), &real = run.at(kRun, cell);
      // Sends and pushes are in flight for some time in the plan, but return immediately in a run.
      if (is_send(kind) || is_recv(kind) || kind == Kind::Push) return;
      if (!plan.there() || !real.there()) return;
      ComparedKind& sum = sums[kind];
      sum.kind = kind_name(kind);
      ++sum.count;
      double planned = plan.duration_us(), took = real.duration_us();
      if (is_collective(kind)) {  // the wait for other members is not the collective's own time
        const RunGraph graph(progress_, run);
        const int pipeline = row / index_.workers();
        planned = plan.end_us - graph.begun_us(kPlan, pipeline, position);
        took = real.end_us - graph.begun_us(kRun, pipeline, position);
      }
      sum.time.predicted += planned;
      sum.time.measured += took;
    });
    std::vector<ComparedKind> kinds;
    for (auto& [kind, sum] : sums) {
      sum.time.predicted /= sum.count;
      sum.time.measured /= sum.count;
      kinds.push_back(sum);
    }
    return kinds;
  }

  std::vector<ComparedWorker> workers() const {
    std::vector<ComparedWorker> rows(static_cast<std::size_t>(index_.workers()) *
                                     progress_.pipelines());
    for (std::size_t w = 0; w < rows.size(); ++w) rows[w].worker = static_cast<int>(w);
    for (const TraceSource source : {kPlan, kRun}) {
      const auto part =
          source == kPlan ? &PredictedAndMeasured::predicted : &PredictedAndMeasured::measured;
      for (const RunTimes& run : runs_) {
        std::vector<double> end(rows.size(), 0), busy(rows.size(), 0);
        each_of(run, [&](int row, int position, std::int64_t cell) {
          const Span& span = run.at(source, cell);
          if (!span.there() || !is_work(index_.at(position).kind)) return;
          end[row] = std::max(end[row], span.end_us);
          busy[row] += span.duration_us();
        });
        const double makespan = run.makespan_us(source, index_), n = runs_.size();
        for (std::size_t w = 0; w < rows.size(); ++w) {
          rows[w].end.*part += end[w] / n;
          rows[w].busy.*part += busy[w] / n;
          rows[w].idle.*part += std::max(0.0, makespan - busy[w]) / n;
        }
      }
    }
    return rows;
  }

  std::vector<ComparedEdge> edges() const {
    std::map<std::pair<int, int>, ComparedEdge> sums;
    const double n = runs_.size();
    each([&](const RunTimes& run, int row, int position, std::int64_t cell) {
      if (!is_recv(index_.at(position).kind) || !run.at(kRun, cell).there()) return;
      const int base = row / index_.workers() * index_.workers();
      const Span& taken = run.at(kRun, cell);
      for (const Progress::Need& need : progress_.needs(position)) {
        if (need.worker < 0 || !is_send(index_.at(need.done).kind)) continue;
        // Sender and receiver belong to the same pipeline, so their cells differ as their positions
        // do.
        const std::int64_t sent = cell - position + need.done;
        const Span &planned = run.at(kPlan, sent), &left = run.at(kRun, sent);
        ComparedEdge& edge = sums[{base + need.worker, row}];
        edge.from = base + need.worker;
        edge.to = row;
        ++edge.messages;
        edge.waiting.measured += taken.duration_us() / n;
        edge.waiting.predicted += planned_wait(run, position, cell, planned) / n;
        if (!left.there() || !planned.there() || left.start_us < taken.start_us) continue;
        ++edge.awaited;
        edge.transit.predicted += planned.duration_us();
        edge.transit.measured += taken.end_us - left.start_us;
      }
    });
    std::vector<ComparedEdge> edges;
    for (auto& [pair, edge] : sums) {
      edge.transit.predicted /= std::max(1, edge.awaited);
      edge.transit.measured /= std::max(1, edge.awaited);
      edges.push_back(edge);
    }
    return edges;
  }

 private:
  template <class Visit>
  void each_of(const RunTimes&, const Visit& visit) const {
    for (int d = 0; d < progress_.pipelines(); ++d) {
      for (int p = 0; p < index_.size(); ++p)
        visit(d * index_.workers() + index_.worker_of(p), p,
              static_cast<std::int64_t>(d) * index_.size() + p);
    }
  }
  template <class Visit>
  void each(const Visit& visit) const {
    for (const RunTimes& run : runs_) {
      each_of(run,
              [&](int row, int position, std::int64_t cell) { visit(run, row, position, cell); });
    }
  }

  // Returns how long the plan makes the receiver wait for this message.
  double planned_wait(const RunTimes& run, int position, std::int64_t cell,
                      const Span& message) const {
    if (!message.there()) return 0;
    double free = 0;
    for (int p = position - 1; p >= index_.row_begin(index_.worker_of(position)); --p) {
      const Span& before = run.at(kPlan, cell - position + p);
      const Kind kind = index_.at(p).kind;
      if (is_recv(kind)) {
        free = std::max(free, planned_arrival(run, p, cell - position));
      } else if ((is_work(kind) || kind == Kind::Update || kind == Kind::Pull) && before.there()) {
        return std::max(0.0, message.end_us - std::max(free, before.end_us));
      }
    }
    return std::max(0.0, message.end_us - free);
  }

  double planned_arrival(const RunTimes& run, int receive, std::int64_t base) const {
    for (const Progress::Need& need : progress_.needs(receive)) {
      if (need.worker < 0 || !is_send(index_.at(need.done).kind)) continue;
      const Span& message = run.at(kPlan, base + need.done);
      if (message.there()) return message.end_us;
    }
    return 0;
  }

  const PlanIndex& index_;
  const Progress& progress_;
  const std::vector<RunTimes>& runs_;
};

// Returns the run with the median step time.
std::size_t median_run(const std::vector<ComparedRun>& runs) {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < runs.size(); ++r) order.push_back(r);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return runs[a].step.measured < runs[b].step.measured;
  });
  return order[(order.size() - 1) / 2];
}

std::size_t run_of_step(const std::vector<RunTimes>& runs, int step) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), step,
                       [](int s, const RunTimes& run) { return s < run.first_step; });
  require(after != runs.begin(), "step {} is not in the trace; it begins with step {}", step,
          runs.front().first_step);
  return static_cast<std::size_t>(after - runs.begin() - 1);
}

}  // namespace

Comparison compare(const Trace& trace, const Schedule& plan, const CompareOptions& options) {
  require(is_lowered(plan) || plan.workers.size() == 1,
          "the plan in the trace has no messages, so it is not the plan that ran");
  verify(plan);
  const PlanIndex index(plan);
  const int pipelines = plan.lowering.pipelines;
  const Progress progress(index, kUnboundedSlots, pipelines);
  std::vector<RunTimes> runs = times_of_runs(trace, index, pipelines);
  Comparison c;
  c.method = plan.method;
  c.stages = plan.stages;
  c.micro_batches = plan.micro_batches;
  c.pipelines = pipelines;
  for (const RunTimes& run : runs) c.unplanned += run.unplanned;
  // The first run allocates memory and fills caches.
  if (first_warms_up(runs.size()) && !options.all && options.step != runs[0].first_step) {
    runs.erase(runs.begin());
    c.warm_up = 1;
  }
  const Comparer comparer(index, progress, runs);
  c.runs = comparer.steps();
  c.kinds = comparer.kinds();
  c.workers = comparer.workers();
  c.edges = comparer.edges();
  const std::size_t looked =
      options.step >= 0 ? run_of_step(runs, options.step) : median_run(c.runs);
  c.step = runs[looked].first_step;
  c.tolerance_us = options.behind * c.runs[looked].step.predicted;
  const RunGraph graph(progress, runs[looked]);
  c.first_behind = graph.first_behind(c.tolerance_us);
  c.last = graph.last();
  return c;
}

}  // namespace hetu
