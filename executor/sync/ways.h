// The ways of weight synchronisation, one row each: the kind of instruction that drives it, and who
// makes it. Training and rehearsals ask for those of their plan.
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

/// What a way may use on its worker; all must outlive it.
struct SyncSeat {
  comm::Transport& transport;
  Stages& stages;
  comm::Reducer& reducer;
  int placement = 0;                       ///< of the worker's stage whose weights are averaged
  Averager* averager = nullptr;            ///< null unless the plan averages weights
  ps::ParameterClient* servers = nullptr;  ///< null unless the plan pushes to them
  WavesOptions waves = {};                 ///< to servers
  AllReduce::How sums = {};
};

/// The ways that a lowered plan has instructions of.
std::vector<std::unique_ptr<WeightSync>> ways_of(const Schedule& plan, const SyncSeat& seat);

}  // namespace hetu
