// The result of a prediction: the figures of a run and, if requested, its events. Names and
// meanings are those of the JSON of `hetu simulate`.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"

namespace hetu {

/// Times of one worker. They cover compute instructions; `busy` and `end` also cover K-FAC's
/// computations.
struct WorkerTiming {
  double busy = 0;
  double start = 0;
  double end = 0;
  double peak_activations = 0;  ///< In micro-batches, as in VerifyReport.
  double peak_bytes = 0;        ///< Activations and weight versions, if the costs give bytes.
  int weight_versions = 1;
  std::vector<int> stages;  ///< Placement ids.
};

/// Figures of a run. All times are in the costs' unit.
struct Simulation {
  std::string method;
  int stages = 0;
  int micro_batches = 0;
  int steps = 1;
  int pipelines = 1;
  std::string time_unit;
  double makespan = 0;          ///< End of the last compute instruction or K-FAC computation.
  double step_time = 0;         ///< End of the last instruction or collective.
  double ideal = 0;             ///< The largest WorkerTiming::busy.
  double bubble_fraction = 0;   ///< Idle time / (makespan * workers).
  double bubble_overhead = 0;   ///< (makespan - ideal) / ideal
  double span = 0;              ///< The largest end - start of a worker.
  double span_bubble_rate = 0;  ///< 1 - ideal / span
  bool asynchronous = false;
  /// If asynchronous: idle share of worker 0 in the middle half of its micro-batches.
  double steady_bubble = 0;
  /// Micro-batches per time unit of all pipelines. An asynchronous run counts without fill and
  /// drain.
  double throughput = 0;
  /// All workers of pipeline 0, then those of pipeline 1, and so on.
  std::vector<WorkerTiming> workers;
  std::vector<TraceEvent> events;  ///< Sorted by worker and time.
};

}  // namespace hetu
