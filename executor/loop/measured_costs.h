// What a run of all workers took, as costs that every worker knows alike. Read by who plans anew.
#pragma once
#include <vector>

#include "executor/loop/trace_recorder.h"
#include "net/transport/collective.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The records of every worker, by worker; every worker of the job calls it. Blocks.
std::vector<std::vector<TraceRecorder::Record>> gather_records(
    comm::Transport& transport, const std::vector<TraceRecorder::Record>& mine,
    const comm::Exchange& exchange);

/// Milliseconds: the typical time of each kind and model stage in the records of all workers, and
/// of links, bytes and whatever they do not tell what `planned` says. `plan`: of the records.
/// Throws as costs_of_trace.
Costs measured_costs(const std::vector<std::vector<TraceRecorder::Record>>& all,
                     const Schedule& plan, const Costs& planned);

}  // namespace hetu
