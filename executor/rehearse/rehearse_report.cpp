// A rehearsal as text, JSON and a trace.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "executor/rehearse/rehearse.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

// Simulated events show one unit of any kind as a millisecond.
constexpr double kPredictedUnitUs = 1000;

struct Total {
  int count = 0;
  double predicted = 0;  // in the costs' unit
  double measured = 0;
};

// Returns true for compute, updates and collectives. Messages have no predicted time of their own.
bool counted(const TraceEvent& event) {
  return event.kind.rfind("SEND", 0) != 0 && event.kind.rfind("RECV", 0) != 0;
}

// Sums the durations of events per key, predicted and measured.
template <class KeyOf>
auto totals(const Rehearsal& r, const KeyOf& key_of) {
  std::map<decltype(key_of(TraceEvent{})), Total> sums;
  for (const TraceEvent& e : r.measured.events) {
    if (!counted(e)) continue;
    Total& total = sums[key_of(e)];
    ++total.count;
    total.measured += e.duration_us / r.unit_us;
  }
  for (const TraceEvent& e : r.predicted.events) {
    if (counted(e)) sums[key_of(e)].predicted += e.duration_us / kPredictedUnitUs;
  }
  return sums;
}

double ratio(double measured, double predicted) { return predicted > 0 ? measured / predicted : 0; }

json three(double makespan, double step_time, double throughput) {
  return {{"makespan", makespan}, {"step_time", step_time}, {"throughput", throughput}};
}

std::string row(const std::string& name, double predicted, double measured) {
  const double r = ratio(measured, predicted);
  return fmt::format("{:<22}{:>12.3f}{:>12.3f}{:>9}\n", name, predicted, measured,
                     r > 0 ? fmt::format("{:.4f}", r) : "-");
}

}  // namespace

std::string to_text(const Rehearsal& r) {
  const Simulation& p = r.predicted;
  std::string text = fmt::format(
      "{}: {} workers, {} micro-batches per step, messages of {} bytes, one time unit = {:g} ms, "
      "median of {} after a warm-up\n",
      p.method, p.workers.size(), p.micro_batches * p.pipelines, r.payload_bytes, r.unit_us * 1e-3,
      r.step_times.size());
  text += fmt::format("{:<22}{:>12}{:>12}{:>9}\n", "", "predicted", "measured", "ratio");
  text += row("makespan", p.makespan, r.measured.makespan);
  text += row("step time", p.step_time, r.measured.step_time);
  text += row("throughput", p.throughput, r.measured.throughput);
  if (!r.measured.updates.empty())
    text += fmt::format(
        "updates of each pipeline: {}; {} by {:.1e}\n", fmt::join(r.measured.updates, ", "),
        r.at_servers ? "the servers' weights differ" : "the mean of their weights drifts",
        r.measured.mean_drift);
  for (std::size_t n = 0; n < r.step_times.size(); ++n)
    text += row(fmt::format("step {}", n + 1), p.step_time, r.step_times[n]);
  for (const auto& [kind, t] : totals(r, [](const TraceEvent& e) { return e.kind; })) {
    text += row(fmt::format("{} (mean of {})", kind, t.count), t.predicted / std::max(1, t.count),
                t.measured / std::max(1, t.count));
  }
  for (const auto& [worker, t] : totals(r, [](const TraceEvent& e) { return e.worker; }))
    text += row(fmt::format("worker {} (sum)", worker), t.predicted, t.measured);
  return text;
}

std::string to_json(const Rehearsal& r) {
  const Simulation& p = r.predicted;
  json out = {{"method", p.method},
              {"stages", p.stages},
              {"micro_batches", p.micro_batches},
              {"pipelines", p.pipelines},
              {"time_unit", p.time_unit.empty() ? "unit" : p.time_unit},
              {"unit_ms", r.unit_us * 1e-3},
              {"payload", r.payload_bytes},
              {"predicted", three(p.makespan, p.step_time, p.throughput)},
              {"measured", three(r.measured.makespan, r.measured.step_time, r.measured.throughput)},
              {"ratio", r.ratio},
              {"step_times", r.step_times},
              {"kinds", json::array()},
              {"workers", json::array()}};
  if (!r.measured.updates.empty())
    out[r.at_servers ? "servers" : "groups"] = {{"updates", r.measured.updates},
                                                {"mean_drift", r.measured.mean_drift}};
  for (const auto& [kind, t] : totals(r, [](const TraceEvent& e) { return e.kind; })) {
    const int count = std::max(1, t.count);
    out["kinds"].push_back({{"kind", kind},
                            {"count", t.count},
                            {"predicted", t.predicted / count},
                            {"measured", t.measured / count}});
  }
  for (const auto& [worker, t] : totals(r, [](const TraceEvent& e) { return e.worker; })) {
    out["workers"].push_back(
        {{"worker", worker}, {"predicted", t.predicted}, {"measured", t.measured}});
  }
  return out.dump(1) + "\n";
}

Trace to_trace(const Rehearsal& r) {
  Trace trace;
  trace.events = r.predicted.events;
  const double scale = r.unit_us / kPredictedUnitUs;
  for (TraceEvent& e : trace.events) {
    e.start_us *= scale;
    e.duration_us *= scale;
  }
  trace.events.insert(trace.events.end(), r.measured.events.begin(), r.measured.events.end());
  return trace;
}

}  // namespace hetu
