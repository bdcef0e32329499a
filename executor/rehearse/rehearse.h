// `hetu rehearse`: runs a plan on real workers with real messages, where kernels only wait for the
// time that a cost model gives, and compares the measured step with the simulated one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "executor/rehearse/rehearse_groups.h"
#include "executor/rehearse/timed_stages.h"
#include "net/transport/transport.h"
#include "pipeline/simulate/simulate.h"
#include "ps/client/parameter_client.h"

namespace hetu {

/// The connection of a rehearsal's workers to the servers that its pipelines share weights on.
struct RehearsedServers {
  /// Opens this worker's connections. Empty for a rehearsal in one process, which has its own
  /// servers.
  std::function<std::unique_ptr<ps::ParameterClient>(const ps::ParameterOptions&)> connect = {};
};

/// The means by which pipelines exchange weights, besides all-reduces; null: not used.
struct RehearsedMeeting {
  const RehearsedGroups* groups = nullptr;
  const RehearsedServers* servers = nullptr;
};

/// One measured step. Times are in the costs' unit, with the meanings of Simulation.
struct MeasuredStep {
  double makespan = 0;
  double step_time = 0;
  double throughput = 0;
  /// For pipelines that average in groups: the updates that each pipeline has applied on all its
  /// stages. `mean_drift` is the relative deviation of the weights' mean over the pipelines from
  /// the value that the updates alone give. For pipelines that share weights on servers, it is that
  /// of the servers' weights.
  std::vector<std::int64_t> updates;
  double mean_drift = 0;
  /// By worker, in microseconds of real time since the step's start.
  std::vector<TraceEvent> events;
};

/// The prediction and the measured steps.
struct Rehearsal {
  Simulation predicted;            ///< with events
  MeasuredStep measured;           ///< the step with the median step_time
  std::vector<double> step_times;  ///< of every step after the warm-up
  double unit_us = 0;              ///< real microseconds per unit of the costs
  std::size_t payload_bytes = 0;
  double ratio = 0;         ///< measured / predicted step time
  bool at_servers = false;  ///< true if pipelines share weights on servers, false for groups
};

/// Throws InvalidArgument unless `workers` is plan.workers x plan.lowering.pipelines, the number of
/// workers that the plan needs.
void check_workers(const Schedule& lowered, int workers);

/// Runs a warm-up step and `repeat` steps of the plan as one of its workers. If the body of the
/// plan repeats, the warm-up is shorter. Collective: every worker of the transport calls it and
/// gets the same result.
///
/// With `at.groups`, pipelines average payload_bytes of weights and proceed at their own pace. A
/// step is then a whole run of total_micros updates per pipeline. A plan with servers requires
/// `at.servers`. Throws InvalidArgument for a wrong number of workers (see check_workers) and for
/// repeat < 1; otherwise as simulate and the waits of a transport.
Rehearsal rehearse(const Schedule& lowered, const Costs& costs, const Pace& pace, int repeat,
                   comm::Transport& transport, const RehearsedMeeting& at = {});

/// As above, in one process with a thread per worker.
Rehearsal rehearse_in_threads(const Schedule& lowered, const Costs& costs, const Pace& pace,
                              int repeat, const comm::Options& options,
                              const RehearsedGroups* groups = nullptr);

/// Returns the comparison of measured and predicted times as text of several lines: the step, each
/// kind of instruction, each worker.
std::string to_text(const Rehearsal& rehearsal);

/// Returns one JSON object with method, sizes, predicted, measured, ratio, steps, kinds and
/// workers.
std::string to_json(const Rehearsal& rehearsal);

/// Returns the predicted and measured events on one axis of real time.
Trace to_trace(const Rehearsal& rehearsal);

}  // namespace hetu
