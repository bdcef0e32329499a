// Predicts a plan: when everything starts and ends under given costs. The events have the type of a
// real run's, so that prediction and measurement can be compared and drawn alike.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/trace.h"
#include "pipeline/cost.h"
#include "pipeline/jitter.h"
#include "pipeline/progress.h"
#include "pipeline/schedule.h"

namespace hetu {

struct SimulateOptions {
  int send_slots = kUnboundedSlots;  ///< matters for lowered plans only
  double jitter = 0;                 ///< strength, see jitter.h
  std::uint64_t seed = 0;
  double hetero = 0;  ///< pause of this length before one compute instruction in ten
  std::vector<Slowdown> slow = {};
  bool events = false;  ///< fill Simulation::events
  bool partly = false;  ///< of a plan that stops or fails the audit, what runs; no peaks then
};

/// Throws InvalidArgument: a disturbance of nothing that is there, or by no number. `workers`
/// counts those of all pipelines.
void check_disturbances(const SimulateOptions& options, int pipelines, int workers);

/// Of one worker; compute instructions only.
struct WorkerTiming {
  double busy = 0;
  double start = 0;
  double end = 0;
  double peak_activations = 0;  ///< in micro-batches, as in VerifyReport
  double peak_bytes = 0;        ///< activations and weight versions, where the costs name bytes
  int weight_versions = 1;
  std::vector<int> stages;  ///< placement ids
};

/// All times in the costs' unit. Names and meanings as in the JSON of `hetu simulate`.
struct Simulation {
  std::string method;
  int stages = 0;
  int micro_batches = 0;
  int steps = 1;
  int pipelines = 1;
  std::string time_unit;
  double makespan = 0;          ///< end of the last compute instruction
  double step_time = 0;         ///< end of the last compute, update or collective
  double ideal = 0;             ///< the largest busy
  double bubble_fraction = 0;   ///< idle / (makespan * workers)
  double bubble_overhead = 0;   ///< (makespan - ideal) / ideal
  double span = 0;              ///< the largest end - start
  double span_bubble_rate = 0;  ///< 1 - ideal / span
  bool asynchronous = false;
  double steady_bubble = 0;  ///< if asynchronous: idle share of worker 0 in the middle half
  double throughput = 0;     ///< micro-batches per time unit, all pipelines, without fill and drain
  std::vector<WorkerTiming> workers;  ///< pipeline by pipeline
  std::vector<TraceEvent> events;     ///< by worker and time
};

/// Runs a compute-only or lowered plan on schedule.lowering.pipelines pipelines. Messages cost time
/// whether the plan is lowered or not; reductions and updates only exist in a lowered one. Throws
/// Plan if it cannot run or verify's audit refuses it, InvalidArgument if costs or options do not
/// fit it. Incomplete plans are verify's to refuse.
Simulation simulate(const Schedule& schedule, const Costs& costs,
                    const SimulateOptions& options = {});

/// The least number of send slots, not below least_send_slots, with which a step of a lowered plan
/// takes no longer by these costs than without a bound. Throws as simulate.
int ample_send_slots(const Schedule& lowered, const Costs& costs);

/// The JSON of the contract, one object.
std::string to_json(const Simulation& simulation);

}  // namespace hetu
