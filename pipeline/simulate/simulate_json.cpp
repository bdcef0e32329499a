#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "pipeline/simulate/simulate.h"
#include "pipeline/simulate/simulate_groups.h"

namespace hetu {
namespace {

using json = nlohmann::ordered_json;

json object_of(const Simulation& s) {
  json workers = json::array();
  for (const WorkerTiming& w : s.workers) {
    workers.push_back({{"busy", w.busy},
                       {"start", w.start},
                       {"end", w.end},
                       {"peak_activations", w.peak_activations},
                       {"weight_versions", w.weight_versions},
                       {"stages", w.stages}});
    if (w.peak_bytes > 0) workers.back()["peak_bytes"] = w.peak_bytes;
  }
  json out = {{"method", s.method},
              {"stages", s.stages},
              {"micro_batches", s.micro_batches},
              {"pipelines", s.pipelines},
              {"time_unit", s.time_unit.empty() ? "unit" : s.time_unit},
              {"makespan", s.makespan},
              {"step_time", s.step_time},
              {"ideal", s.ideal},
              {"bubble_fraction", s.bubble_fraction},
              {"bubble_overhead", s.bubble_overhead},
              {"span", s.span},
              {"span_bubble_rate", s.span_bubble_rate},
              {"throughput", s.throughput}};
  if (s.asynchronous) {
    out["steps"] = s.steps;
    out["steady_bubble"] = s.steady_bubble;
  }
  out["workers"] = std::move(workers);
  return out;
}

// Returns the sizes of the groups and the time that their members waited for each other.
json figures_of(const std::vector<groups::Decision>& closed) {
  std::map<std::size_t, std::int64_t> sizes;
  std::int64_t members = 0;
  double waited = 0;
  for (const groups::Decision& d : closed) {
    ++sizes[d.members.size()];
    members += static_cast<std::int64_t>(d.members.size());
    for (const std::int64_t at : d.arrived_us) waited += static_cast<double>(d.closed_us - at);
  }
  json counts = json::object();
  std::int64_t before = 0;
  std::size_t median = 0;
  for (const auto& [size, count] : sizes) {
    counts[std::to_string(size)] = count;
    before += count;
    if (median == 0 && 2 * before >= static_cast<std::int64_t>(closed.size())) median = size;
  }
  const auto all = static_cast<double>(std::max<std::size_t>(1, closed.size()));
  const auto each = static_cast<double>(std::max<std::int64_t>(1, members));
  return {{"count", closed.size()},
          {"mean_size", static_cast<double>(members) / all},
          {"median_size", median},
          {"sizes", std::move(counts)},
          {"mean_wait_us", waited / each}};
}

}  // namespace

std::string to_json(const Simulation& s) { return object_of(s).dump(1) + "\n"; }

std::string to_json(const GroupSimulation& s) {
  json out = object_of(s.run);
  out["groups"] = figures_of(s.groups);
  return out.dump(1) + "\n";
}

}  // namespace hetu
