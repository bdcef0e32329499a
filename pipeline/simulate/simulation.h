// What a prediction says: the figures of a run and, if asked, its events. Names and meanings as in
// the JSON of `hetu simulate`.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"

namespace hetu {

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

}  // namespace hetu
