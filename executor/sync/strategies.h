// The strategies of weight synchronisation, one row each: the kind of instruction that the strategy
// runs, and the function that creates it. Used by training and rehearsals.
#pragma once
#include <memory>
#include <vector>

#include "executor/stage/stages.h"
#include "executor/sync/all_reduce.h"
#include "executor/sync/averager.h"
#include "executor/sync/server_weights.h"
#include "executor/sync/weight_sync.h"
#include "net/transport/collective.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// The objects of a worker that a strategy may use; all must outlive it.
struct SyncContext {
  comm::Transport& transport;
  Stages& stages;
  comm::Reducer& reducer;
  int placement = 0;                       ///< the worker's stage whose weights are averaged
  Averager* averager = nullptr;            ///< null unless the plan averages weights
  ps::ParameterClient* servers = nullptr;  ///< null unless the plan pushes to servers
  WavesOptions waves = {};                 ///< settings for sharing through servers
  AllReduce::How sums = {};
};

/// Creates the strategies whose instructions a lowered plan has.
std::vector<std::unique_ptr<WeightSync>> make_strategies(const Schedule& plan,
                                                         const SyncContext& context);

}  // namespace hetu
