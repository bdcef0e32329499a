#include "pipeline/render/timeline.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/render/palette.h"

namespace hetu {
namespace {

/// The events of one source, and its steps.
struct Source {
  std::vector<const TraceEvent*> events;
  std::vector<int> steps;  ///< ascending, without duplicates
};

Source source_of(const Trace& trace, TraceSource which) {
  Source source;
  for (const TraceEvent& e : trace.events) {
    if (e.source != which) continue;
    source.events.push_back(&e);
    source.steps.push_back(e.step);
  }
  std::sort(source.steps.begin(), source.steps.end());
  source.steps.erase(std::unique(source.steps.begin(), source.steps.end()), source.steps.end());
  return source;
}

std::string title_of(const char* name, const Source& source, std::size_t from, std::size_t count) {
  const std::size_t all = source.steps.size();
  if (all == 1) return name;
  const int first = source.steps[from];
  const int last = source.steps[from + count - 1];
  std::string shown =
      count == 1 ? fmt::format("step {}", first)
                 : fmt::format("{}steps {} to {}", count == all ? "all " : "", first, last);
  if (count < all) shown += fmt::format(" of {} to {}", source.steps.front(), source.steps.back());
  return fmt::format("{}: {}", name, shown);
}

/// Returns the events within the time span of the chosen steps, cut to it. Events of all steps
/// count, because steps of an asynchronous method overlap.
TimelineRowSet cut(const char* name, const Source& source, std::size_t from, std::size_t count) {
  const int first = source.steps[from];
  const int last = source.steps[from + count - 1];
  double start = INFINITY;
  double end = -INFINITY;
  for (const TraceEvent* e : source.events) {
    if (e->step < first || e->step > last) continue;
    if (look_of(e->kind).lane == Lane::Main) start = std::min(start, e->start_us);
    end = std::max(end, e->start_us + e->duration_us);
  }
  // Receives are posted before a step's first work, so that they don't define its start. A step
  // without work starts with its first event.
  if (!std::isfinite(start)) {
    for (const TraceEvent* e : source.events) {
      if (e->step >= first && e->step <= last) start = std::min(start, e->start_us);
    }
  }
  const bool whole = count == source.steps.size();
  TimelineRowSet set;
  set.title = title_of(name, source, from, count);
  for (const TraceEvent* e : source.events) {
    const double stop = e->start_us + e->duration_us;
    const bool chosen = e->step >= first && e->step <= last;
    const bool inside =
        e->start_us >= start && (e->start_us < end || (chosen && e->start_us <= end));
    if (!whole && !inside && !(e->start_us < start && stop > start)) continue;
    TraceEvent shown = *e;
    if (!whole) {
      shown.start_us = std::max(e->start_us, start);
      shown.duration_us = std::max(0.0, std::min(stop, end) - shown.start_us);
    }
    shown.start_us -= start;
    set.events.push_back(std::move(shown));
  }
  return set;
}

}  // namespace

double Usage::utilisation() const {
  double sum = 0;
  for (const double b : busy) sum += b;
  const double room = makespan() * workers;
  return room > 0 ? sum / room : 0;
}

std::vector<std::vector<std::size_t>> main_rows(const std::vector<TraceEvent>& events,
                                                int workers) {
  std::vector<std::vector<std::size_t>> rows(workers);
  for (std::size_t i = 0; i < events.size(); ++i) {
    if (look_of(events[i].kind).lane == Lane::Main) rows[events[i].worker].push_back(i);
  }
  for (auto& row : rows) {
    std::stable_sort(row.begin(), row.end(), [&](std::size_t a, std::size_t b) {
      const TraceEvent& x = events[a];
      const TraceEvent& y = events[b];
      if (x.start_us != y.start_us) return x.start_us < y.start_us;
      return x.start_us + x.duration_us < y.start_us + y.duration_us;
    });
  }
  return rows;
}

std::vector<std::vector<int>> stages_of(const std::vector<TraceEvent>& events, int workers) {
  std::vector<std::vector<int>> stages(workers);
  for (const TraceEvent& e : events) {
    if (e.stage < 0 || look_of(e.kind).lane != Lane::Main) continue;
    auto& seen = stages[e.worker];
    const auto at = std::lower_bound(seen.begin(), seen.end(), e.stage);
    if (at == seen.end() || *at != e.stage) seen.insert(at, e.stage);
  }
  return stages;
}

Usage usage_of(const std::vector<TraceEvent>& events) {
  Usage usage;
  if (events.empty()) return usage;
  usage.start = INFINITY;
  usage.end = -INFINITY;
  for (const TraceEvent& e : events) {
    require(e.worker >= 0 && e.worker < 1'000'000 && std::isfinite(e.start_us) &&
                std::isfinite(e.duration_us) && e.duration_us >= 0,
            "event {} of worker {}: start {} us, duration {} us; workers count from 0 to 999,999, "
            "times must be finite and durations >= 0",
            cell_of(e, true), e.worker, e.start_us, e.duration_us);
    usage.workers = std::max(usage.workers, e.worker + 1);
    usage.start = std::min(usage.start, e.start_us);
    usage.end = std::max(usage.end, e.start_us + e.duration_us);
  }
  usage.compute_end = usage.start;
  usage.busy.assign(usage.workers, 0);
  const auto rows = main_rows(events, usage.workers);
  for (int w = 0; w < usage.workers; ++w) {
    double covered = usage.start;  // overlapping events (an overlapped pair) count once
    for (const std::size_t i : rows[w]) {
      if (!look_of(events[i].kind).compute) continue;
      const double end = events[i].start_us + events[i].duration_us;
      usage.busy[w] += std::max(0.0, end - std::max(covered, events[i].start_us));
      covered = std::max(covered, end);
    }
    usage.compute_end = std::max(usage.compute_end, covered);
  }
  return usage;
}

TimeUnit resolve_unit(const TimeUnit& unit, double span_us) {
  if (!unit.name.empty()) {
    require(std::isfinite(unit.us) && unit.us > 0,
            "time unit '{}' must be longer than 0 us, got {}", unit.name, unit.us);
    return unit;
  }
  if (span_us >= 5e6) return {"s", 1e6};
  if (span_us >= 5e3) return {"ms", 1e3};
  return {"us", 1};
}

std::string short_number(double value, int digits) {
  std::string text = fmt::format("{:.{}f}", value, digits);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string cell_of(const TraceEvent& event, bool with_stage) {
  std::string text = with_stage && event.stage >= 0 ? std::to_string(event.stage) : "";
  text += event.kind;
  if (event.micro >= 0) text += std::to_string(event.micro);
  return text;
}

// An activation is held from the start of its forward to the start of the backward that frees it.
std::vector<double> peak_activations(const std::vector<TraceEvent>& events, const Schedule& plan) {
  const Usage usage = usage_of(events);
  const double one = 1.0 / std::max(1, plan.chunks);
  const double freed = plan.half_micros ? one / 2 : one;
  std::vector<double> peaks(usage.workers, 0);
  const auto rows = main_rows(events, usage.workers);
  for (int w = 0; w < usage.workers; ++w) {
    double held = 0;  // ordered by start, because rounding may separate an end from the next start
    for (const std::size_t i : rows[w]) {
      const std::string& kind = events[i].kind;
      if (kind == "F") held += one;
      if (kind == "B") held -= freed;
      if (kind == "I" || kind == "W") held -= freed / 2;
      peaks[w] = std::max(peaks[w], held);
    }
  }
  return peaks;
}

std::vector<TimelineRowSet> timeline_rows(const Trace& trace, const StepWindow& window,
                                          const Schedule* plan) {
  require(!trace.events.empty(), "the trace has no events; nothing to draw");
  require(window.first >= -1 && window.steps >= -1,
          "step window: first {} (>= 0, or -1 for a middle one), {} steps (>= 1, or 0 for all)",
          window.first, window.steps);
  const char* names[] = {"predicted", "measured"};
  const Source sources[] = {source_of(trace, TraceSource::Predicted),
                            source_of(trace, TraceSource::Measured)};
  const auto has = [&](const Source& s) {
    return std::binary_search(s.steps.begin(), s.steps.end(), window.first);
  };
  require(window.first < 0 || has(sources[0]) || has(sources[1]),
          "step {} is not in the trace; it has steps {} to {}", window.first,
          (sources[1].steps.empty() ? sources[0] : sources[1]).steps.front(),
          (sources[1].steps.empty() ? sources[0] : sources[1]).steps.back());
  // By default, both sources show the same number of steps, limited by the shorter one, so that the
  // rows are comparable.
  std::size_t count = window.steps == 0 ? trace.events.size() : window.steps;
  if (window.steps < 0) {
    count = 2;
    for (const Source& s : sources) {
      if (!s.steps.empty()) count = std::min(count, s.steps.size());
    }
  }
  std::vector<TimelineRowSet> sets;
  for (int pid = 0; pid < 2; ++pid) {
    const Source& s = sources[pid];
    if (s.steps.empty()) continue;
    const std::size_t n = std::min(count, s.steps.size());
    std::size_t from = (s.steps.size() - n) / 2;
    if (window.steps == 0) {
      from = 0;
    } else if (window.first >= 0 && has(s)) {
      from = std::lower_bound(s.steps.begin(), s.steps.end(), window.first) - s.steps.begin();
    }
    sets.push_back(cut(names[pid], s, from, std::min(n, s.steps.size() - from)));
    if (plan == nullptr) continue;
    std::vector<TraceEvent> all;
    for (const TraceEvent* e : s.events) all.push_back(*e);
    sets.back().peak_activations = peak_activations(all, *plan);
  }
  return sets;
}

}  // namespace hetu
