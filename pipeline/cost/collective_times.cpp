#include "pipeline/cost/collective_times.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "pipeline/cost/averages.h"
#include "pipeline/ir/schedule.h"

namespace hetu {
namespace {

struct Collective {
  int stage = -1;  // model stage
  int step = 0;
  std::vector<const TraceEvent*> members;
  double end_us = 0;
};

// Returns the collectives of one kind in the order of their ends.
std::vector<Collective> collectives(const Trace& trace, TraceSource source, Kind kind,
                                    const std::vector<int>& model_stage) {
  std::map<std::tuple<int, int, int>, Collective> found;  // by step, model stage and part
  for (const TraceEvent& e : trace.events) {
    if (e.source != source || e.kind != kind_name(kind)) continue;
    if (kind == Kind::ReduceGrad && e.stage < 0) continue;
    const int stage = e.stage < 0 ? -1 : model_stage.at(e.stage);
    Collective& c = found[{e.step, stage, e.part}];
    c.stage = stage;
    c.step = e.step;
    c.members.push_back(&e);
    c.end_us = std::max(c.end_us, e.start_us + e.duration_us);
  }
  std::vector<Collective> all;
  for (auto& [key, c] : found) all.push_back(std::move(c));
  std::stable_sort(all.begin(), all.end(),
                   [](const Collective& a, const Collective& b) { return a.end_us < b.end_us; });
  return all;
}

}  // namespace

// The events of a collective last from each member's own arrival, so waits for late members are
// part of them. The time of the collective itself begins at the latest arrival. It also begins
// after the previous collective of each member, because a worker runs one at a time.
CollectiveTimes collective_times(const Trace& trace, TraceSource source,
                                 const std::vector<int>& model_stage) {
  CollectiveTimes times;
  const int stages =
      model_stage.empty() ? 0 : 1 + *std::max_element(model_stage.begin(), model_stage.end());
  std::vector<std::map<int, double>> of_step(stages);  // by model stage: time of each step
  // by worker: end of its last collective; a worker runs one at a time
  std::map<int, double> free_us;
  for (const Collective& c : collectives(trace, source, Kind::ReduceGrad, model_stage)) {
    double begin_us = 0;
    for (const TraceEvent* e : c.members)
      begin_us = std::max({begin_us, e->start_us, free_us[e->worker]});
    of_step[c.stage][c.step] += std::max(0.0, c.end_us - begin_us);
    for (const TraceEvent* e : c.members) free_us[e->worker] = c.end_us;
  }
  for (const auto& steps : of_step) {
    std::vector<double> sums;
    for (const auto& [step, us] : steps) sums.push_back(us);
    times.reduce_grad.push_back(typical(sums));
  }
  std::vector<double> scalars;
  for (const Collective& c : collectives(trace, source, Kind::ReduceScalars, model_stage)) {
    double begin_us = 0;
    for (const TraceEvent* e : c.members) begin_us = std::max(begin_us, e->start_us);
    scalars.push_back(std::max(0.0, c.end_us - begin_us));
  }
  times.reduce_scalars = typical(scalars);
  return times;
}

}  // namespace hetu
