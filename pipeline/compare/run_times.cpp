#include "pipeline/compare/run_times.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "pipeline/ir/event_instr.h"

namespace hetu {
namespace {

constexpr std::array kSources = {TraceSource::Predicted, TraceSource::Measured};

/// Index of the positions of an instruction in one pipeline. Updates and similar instructions have
/// several positions.
class Positions {
 public:
  explicit Positions(const PlanIndex& index) : index_(index) {
    for (int w = 0; w < index.workers(); ++w) {
      for (int p = index.row_begin(w); p < index.row_end(w); ++p)
        where_[key(w, index.at(p))].push_back(p);
    }
  }

  const std::vector<int>* find(int worker, const Instr& instr) const {
    const auto at = where_.find(key(worker, instr));
    return at == where_.end() ? nullptr : &at->second;
  }

 private:
  using Key = std::tuple<int, Kind, int, int, int>;
  static Key key(int worker, const Instr& i) { return {worker, i.kind, i.stage, i.micro, i.part}; }

  const PlanIndex& index_;
  std::map<Key, std::vector<int>> where_;
};

std::vector<int> first_steps(const Trace& trace) {
  std::set<int> steps;
  for (const TraceEvent& e : trace.events) {
    if (e.source == TraceSource::Predicted && e.kind == "F" && e.micro == 0) steps.insert(e.step);
  }
  return {steps.begin(), steps.end()};
}

/// Assigns events to runs, in order of start, and finally shifts each run to its own origin.
class Filler {
 public:
  Filler(const PlanIndex& index, int pipelines, const std::vector<int>& starts)
      : index_(index), pipelines_(pipelines), positions_(index), starts_(starts) {
    runs_.resize(starts.size());
    const std::size_t cells = static_cast<std::size_t>(index.size()) * pipelines;
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      runs_[r].first_step = starts[r];
      for (auto& spans : runs_[r].spans) spans.resize(cells);
    }
    for (auto& next : next_) next.resize(runs_.size());
  }

  void add(const TraceEvent& e) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), e.step);
    const auto instr = instr_of(e);
    if (after == starts_.begin() || !instr) return;
    const auto r = static_cast<std::size_t>(after - starts_.begin() - 1);
    const auto source = static_cast<std::size_t>(e.source);
    const int pipeline = e.worker / index_.workers();
    const std::vector<int>* places = positions_.find(e.worker % index_.workers(), *instr);
    std::size_t nth = 0;
    if (places != nullptr && places->size() > 1)
      nth = next_[source][r][{e.worker, places->front()}]++;
    const bool known = places != nullptr && nth < places->size() && pipeline < pipelines_;
    if (!known) {
      runs_[r].unplanned += e.source == TraceSource::Measured ? 1 : 0;
      return;
    }
    Span& span =
        runs_[r].spans[source][static_cast<std::size_t>(pipeline) * index_.size() + (*places)[nth]];
    span = {e.start_us, e.start_us + std::max(0.0, e.duration_us)};
  }

  std::vector<RunTimes> finish() {
    std::erase_if(runs_, [&](RunTimes& run) {
      for (const TraceSource s : kSources)
        if (!shift(run.spans[static_cast<std::size_t>(s)])) return true;
      return false;
    });
    return std::move(runs_);
  }

 private:
  // Shifts the times to the start of the first compute instruction. Returns false if there is none.
  bool shift(std::vector<Span>& spans) const {
    double origin = INFINITY;
    for (std::size_t c = 0; c < spans.size(); ++c) {
      if (spans[c].there() && is_work(index_.at(static_cast<int>(c) % index_.size()).kind))
        origin = std::min(origin, spans[c].start_us);
    }
    if (std::isinf(origin)) return false;
    for (Span& s : spans) {
      if (!s.there()) continue;
      s.start_us -= origin;
      s.end_us -= origin;
    }
    return true;
  }

  const PlanIndex& index_;
  const int pipelines_;
  const Positions positions_;
  const std::vector<int>& starts_;
  std::vector<RunTimes> runs_;
  // By source and run: occurrences so far of instructions with several positions.
  std::array<std::vector<std::map<std::pair<int, int>, std::size_t>>, 2> next_;
};

double last_end(const std::vector<Span>& spans, const PlanIndex& index, bool compute_only) {
  double end = 0;
  for (std::size_t c = 0; c < spans.size(); ++c) {
    const Kind kind = index.at(static_cast<int>(c) % index.size()).kind;
    const bool counts =
        compute_only ? is_work(kind) : !is_send(kind) && !is_recv(kind) && kind != Kind::Push;
    if (counts && spans[c].there()) end = std::max(end, spans[c].end_us);
  }
  return end;
}

}  // namespace

double RunTimes::makespan_us(TraceSource source, const PlanIndex& index) const {
  return last_end(spans[static_cast<std::size_t>(source)], index, true);
}

double RunTimes::step_us(TraceSource source, const PlanIndex& index) const {
  return last_end(spans[static_cast<std::size_t>(source)], index, false);
}

std::vector<RunTimes> times_of_runs(const Trace& trace, const PlanIndex& index, int pipelines) {
  for (const TraceSource s : kSources) {
    const bool any = std::any_of(trace.events.begin(), trace.events.end(),
                                 [s](const TraceEvent& e) { return e.source == s; });
    require(any,
            "the trace has no {} events; a training run with --trace and `hetu rehearse --trace` "
            "write both",
            s == TraceSource::Predicted ? "predicted" : "measured");
  }
  std::vector<const TraceEvent*> events;
  for (const TraceEvent& e : trace.events) {
    require(e.worker >= 0 && std::isfinite(e.start_us) && std::isfinite(e.duration_us),
            "invalid event of worker {}: start {} us, duration {} us", e.worker, e.start_us,
            e.duration_us);
    events.push_back(&e);
  }
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->start_us < b->start_us;
  });
  const std::vector<int> starts = first_steps(trace);
  Filler filler(index, pipelines, starts);
  for (const TraceEvent* e : events) filler.add(*e);
  std::vector<RunTimes> runs = filler.finish();
  require(!runs.empty(),
          "no step of the trace is both predicted and measured; the plan in its metadata belongs "
          "to another run");
  return runs;
}

}  // namespace hetu
