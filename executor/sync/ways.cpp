// The table of weight synchronisation strategies.
#include "executor/sync/ways.h"

#include "base/error.h"
#include "executor/sync/group_average.h"

namespace hetu {
namespace {

struct Way {
  Kind kind;
  std::unique_ptr<WeightSync> (*make)(const Schedule& plan, const SyncSeat& seat);
};

std::unique_ptr<WeightSync> all_reduce(const Schedule& /*plan*/, const SyncSeat& seat) {
  return std::make_unique<AllReduce>(seat.stages, seat.transport, seat.reducer, seat.sums);
}

std::unique_ptr<WeightSync> group_average(const Schedule& /*plan*/, const SyncSeat& seat) {
  HETU_ASSERT(seat.averager != nullptr);
  return std::make_unique<GroupAverage>(seat.stages, seat.placement, *seat.averager);
}

std::unique_ptr<WeightSync> server_weights(const Schedule& plan, const SyncSeat& seat) {
  HETU_ASSERT(seat.servers != nullptr);
  if (updates_at_servers(plan) && seat.waves.optimizer)
    return std::make_unique<PushedGradients>(seat.stages, seat.placement, seat.transport,
                                             *seat.servers, seat.waves);
  return std::make_unique<PushedWaves>(seat.stages, seat.placement, seat.transport, *seat.servers,
                                       seat.waves);
}

constexpr Way kWays[] = {
    {Kind::ReduceGrad, &all_reduce},
    {Kind::PartialReduce, &group_average},
    {Kind::Push, &server_weights},
};

}  // namespace

std::vector<std::unique_ptr<WeightSync>> ways_of(const Schedule& plan, const SyncSeat& seat) {
  std::vector<std::unique_ptr<WeightSync>> ways;
  for (const Way& way : kWays)
    if (holds(plan, way.kind)) ways.push_back(way.make(plan, seat));
  return ways;
}

}  // namespace hetu
