// `hetu rehearse`: a plan on real workers with real messages, whose kernels wait for the time of a
// cost model; the measured step beside the simulated one.
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

/// How the workers of a rehearsal reach the servers at which its pipelines meet.
struct RehearsedServers {
  /// This worker's lines to them. Empty, in one process: it has servers of its own.
  std::function<std::unique_ptr<ps::ParameterClient>(const ps::ParameterOptions&)> connect = {};
};

/// Where its pipelines meet but at all-reduces; null: nowhere.
struct RehearsedMeeting {
  const RehearsedGroups* groups = nullptr;
  const RehearsedServers* servers = nullptr;
};

/// One step as it happened; times in the costs' unit, meanings as in Simulation.
struct MeasuredStep {
  double makespan = 0;
  double step_time = 0;
  double throughput = 0;
  /// Pipelines that average in groups: updates that each has applied on all its stages, and how far
  /// the weights' mean over the pipelines is from what the updates alone make it, relative. Of
  /// those that meet at servers the same, of the servers' weights.
  std::vector<std::int64_t> updates;
  double mean_drift = 0;
  std::vector<TraceEvent> events;  ///< microseconds of real time since the step's start, by worker
};

/// The prediction and the steps that were measured.
struct Rehearsal {
  Simulation predicted;            ///< with events
  MeasuredStep measured;           ///< the step of median step_time
  std::vector<double> step_times;  ///< of every step after the warm-up
  double unit_us = 0;              ///< real microseconds of one unit
  std::size_t payload_bytes = 0;
  double ratio = 0;         ///< measured / predicted step time
  bool at_servers = false;  ///< its pipelines met there, not in groups
};

/// Throws InvalidArgument unless a job of `workers` workers can rehearse the plan: it must have
/// plan.workers x plan.lowering.pipelines.
void check_workers(const Schedule& lowered, int workers);

/// Runs a warm-up step (of a plan whose body repeats, a short one) and `repeat` steps of the plan
/// as one of its workers; every worker of the transport calls it and gets the same result. With
/// `at.groups` pipelines average payload_bytes of weights and go on at their own pace: a step is a
/// whole run, of total_micros updates per pipeline. A plan with servers needs `at.servers`. Throws
/// InvalidArgument unless the job has plan.workers x plan.lowering.pipelines workers and repeat >=
/// 1; otherwise as simulate, and as the waits of a transport.
Rehearsal rehearse(const Schedule& lowered, const Costs& costs, const Pace& pace, int repeat,
                   comm::Transport& transport, const RehearsedMeeting& at = {});

/// The same in one process, with a thread per worker.
Rehearsal rehearse_in_threads(const Schedule& lowered, const Costs& costs, const Pace& pace,
                              int repeat, const comm::Options& options,
                              const RehearsedGroups* groups = nullptr);

/// Measured beside predicted: the step, each kind of instruction, each worker. Several lines.
std::string to_text(const Rehearsal& rehearsal);

/// One JSON object: method, sizes, predicted, measured, ratio, steps, kinds, workers.
std::string to_json(const Rehearsal& rehearsal);

/// Predicted and measured events on one axis of real time.
Trace to_trace(const Rehearsal& rehearsal);

}  // namespace hetu
