#include "executor/run_trace.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "executor/safetensors.h"
#include "graph/base/error.h"
#include "pipeline/cost.h"
#include "pipeline/plan_file.h"
#include "pipeline/simulate.h"

namespace hetu {

std::vector<PlannedRun> runs_by_step(const Trace& measured, const Schedule& plan) {
  std::set<int> steps;
  for (const TraceEvent& e : measured.events) steps.insert(e.step);
  std::vector<PlannedRun> runs;
  for (const int step : steps) runs.push_back({step, plan});
  return runs;
}

Trace with_prediction(Trace measured, const std::vector<PlannedRun>& runs) {
  if (measured.events.empty() || runs.empty()) return measured;
  double start_us = measured.events.front().start_us;
  for (const TraceEvent& e : measured.events) start_us = std::min(start_us, e.start_us);
  // The reader takes from the plan which model stage a placement is.
  measured.metadata_json = fmt::format(R"({{"plan":{}}})", to_json(runs.back().plan));
  const Costs costs = parse_costs(trace_to_json(measured), "the run's trace");
  SimulateOptions options;
  options.events = true;
  Simulation simulated;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    // Runs of one step have one plan: it is simulated once.
    const bool again = i > 0 && runs[i].plan.steps == runs[i - 1].plan.steps;
    if (!again) simulated = simulate(runs[i].plan, costs, options);
    for (TraceEvent e : simulated.events) {
      e.step += runs[i].first_step;
      e.start_us += start_us;
      measured.events.push_back(std::move(e));
    }
    start_us += simulated.step_time * unit_us(costs);
  }
  measured.metadata_json =
      fmt::format(R"({{"plan":{},"simulated":{}}})", to_json(runs.back().plan), to_json(simulated));
  return measured;
}

void write_beside(const std::string& path, const std::string& text) {
  const std::string beside = path + ".part";
  try {
    write_synced(beside, text);
  } catch (const Error&) {
    std::remove(beside.c_str());
    throw;
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) {
    std::remove(beside.c_str());
    fail(Code::Io, "{}: cannot be written", path);
  }
}

}  // namespace hetu
