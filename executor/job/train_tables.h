// Embedding tables on parameter servers in a training job: what must go together, and what a
// trainer does with them beside its plan.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/job/train_plan.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_tables.h"

namespace hetu {

/// Those of this worker, opened; null if it has none. All must outlive it.
std::unique_ptr<ServerTables> open_tables(const TrainPlan& job, TrainStages& stages,
                                          comm::Transport& transport, ps::ParameterClient* servers);

/// What a worker's caches did, for traces: a list of objects with the worker, the table and its
/// CacheCounters.
std::string counters_json(int worker,
                          const std::vector<std::pair<std::string, ps::CacheCounters>>& counters);

}  // namespace hetu
