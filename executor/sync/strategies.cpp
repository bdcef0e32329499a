// The table of weight synchronisation strategies.
#include "executor/sync/strategies.h"

#include "base/error.h"
#include "executor/sync/group_average.h"

namespace hetu {
namespace {

struct Strategy {
  Kind kind;
  std::unique_ptr<WeightSync> (*make)(const Schedule& plan, const SyncContext& context);
};

std::unique_ptr<WeightSync> all_reduce(const Schedule& /*plan*/, const SyncContext& context) {
  return std::make_unique<AllReduce>(context.stages, context.transport, context.reducer,
                                     context.sums);
}

std::unique_ptr<WeightSync> group_average(const Schedule& /*plan*/, const SyncContext& context) {
  HETU_ASSERT(context.averager != nullptr);
  return std::make_unique<GroupAverage>(context.stages, context.placement, *context.averager);
}

std::unique_ptr<WeightSync> server_weights(const Schedule& plan, const SyncContext& context) {
  HETU_ASSERT(context.servers != nullptr);
  if (updates_at_servers(plan) && context.waves.optimizer)
    return std::make_unique<PushedGradients>(context.stages, context.placement, context.transport,
                                             *context.servers, context.waves);
  return std::make_unique<PushedWaves>(context.stages, context.placement, context.transport,
                                       *context.servers, context.waves);
}

constexpr Strategy kStrategies[] = {
    {Kind::ReduceGrad, &all_reduce},
    {Kind::PartialReduce, &group_average},
    {Kind::Push, &server_weights},
};

}  // namespace

std::vector<std::unique_ptr<WeightSync>> make_strategies(const Schedule& plan,
                                                         const SyncContext& context) {
  std::vector<std::unique_ptr<WeightSync>> strategies;
  for (const Strategy& strategy : kStrategies)
    if (holds(plan, strategy.kind)) strategies.push_back(strategy.make(plan, context));
  return strategies;
}

}  // namespace hetu
