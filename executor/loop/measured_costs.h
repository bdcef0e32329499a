// The measured times of a run as costs, the same on every worker. Used where a plan is made again
// during training.
#pragma once
#include <vector>

#include "executor/loop/trace_recorder.h"
#include "net/transport/collective.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns the records of every worker, by worker. Collective: every worker of the job calls it.
/// Blocks.
std::vector<std::vector<TraceRecorder::Record>> gather_records(
    comm::Transport& transport, const std::vector<TraceRecorder::Record>& mine,
    const comm::Exchange& exchange);

/// Returns costs in milliseconds: the typical time of each kind and model stage in the records of
/// all workers. Links, bytes and other values that records do not contain are taken from `planned`.
/// `plan` is the plan of the records. Throws as costs_of_trace.
Costs measured_costs(const std::vector<std::vector<TraceRecorder::Record>>& all,
                     const Schedule& plan, const Costs& planned);

}  // namespace hetu
