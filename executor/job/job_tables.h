// Embedding tables on parameter servers in a training job: opening them, and their counters for
// traces.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/job/job_plan.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_tables.h"

namespace hetu {

/// Opens the tables of this worker; returns null if it has none. All arguments must outlive the
/// result.
std::unique_ptr<ServerTables> open_tables(const JobPlan& job, TrainStages& stages,
                                          comm::Transport& transport, ps::ParameterClient* servers);

/// Returns the counters of a worker's caches for traces: a JSON list of objects with the worker,
/// the table and its CacheCounters.
std::string counters_json(int worker,
                          const std::vector<std::pair<std::string, ps::CacheCounters>>& counters);

}  // namespace hetu
