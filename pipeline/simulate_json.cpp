#include <nlohmann/json.hpp>

#include "pipeline/simulate.h"

namespace hetu {

std::string to_json(const Simulation& s) {
  using json = nlohmann::ordered_json;
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
  return out.dump(1) + "\n";
}

}  // namespace hetu
