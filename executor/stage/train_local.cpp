// What the stages of one worker have from each other without messages: values over local
// boundaries, and the gradients of parameters that several of them hold.
#include <algorithm>
#include <cstring>
#include <map>

#include "executor/stage/train_runner.h"
#include "graph/base/error.h"

namespace hetu {

// The stage at the other end of each local boundary, by the plan's placements.
void TrainRunner::find_neighbours(Stage& stage, const Placement& mine) {
  stage.neighbours.assign(stage.plan->boundaries.size(), kNone);
  for (std::size_t b = 0; b < stage.plan->boundaries.size(); ++b) {
    const Boundary& boundary = stage.plan->boundaries[b];
    if (boundary.local && !boundary.incoming)
      stage.neighbours[b] = placement_of(*options_.plan, boundary.to, mine.replica);
  }
}

// What a function has made for stages of this worker is theirs at once.
void TrainRunner::hand_over(Stage& stage, bool backward, int micro) {
  for (std::size_t b = 0; b < stage.plan->boundaries.size(); ++b) {
    const Boundary& out = stage.plan->boundaries[b];
    if (stage.neighbours[b] == kNone || out.backward != backward) continue;
    StageMemory& there = *at(stage.neighbours[b]).memory;
    const Boundary* in = at(stage.neighbours[b]).plan->boundary(true, backward, out.part);
    HETU_ASSERT(in != nullptr && in->bytes == out.bytes);
    auto* to =
        static_cast<std::byte*>(there.in_slot(in->message(), there.ring(in->ring).take(micro)));
    for (const BoundaryValue& value : out.values)
      std::memcpy(to + value.offset, stage.memory->at(value.loc, micro), value.bytes);
    stage.memory->ring(out.ring).release(micro);
  }
}

// Parameters with several holders here: uses of a tied one on two stages, replicas of one stage.
// The lead is the one whose gradient is summed with other workers: of a tied parameter that on the
// lowest stage (reduction.h), of replicas the last that asks for the sum.
void TrainRunner::find_shared() {
  std::map<int, std::vector<Holder>> holders;  // by parameter of the graph
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    if (!stages_[i].plan) continue;
    const auto& parameters = stages_[i].plan->parameters;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].uses.empty())
        holders[parameters[p].parameter].push_back({static_cast<int>(i), static_cast<int>(p)});
    }
  }
  for (auto& [parameter, list] : holders) {
    if (list.size() < 2) continue;
    const auto& placements = options_.plan->placements;
    std::stable_sort(list.begin(), list.end(), [&](const Holder& a, const Holder& b) {
      return placements[a.placement].model_stage < placements[b.placement].model_stage;
    });
    for (const Holder& h : list) {
      Stage& stage = stages_[h.placement];
      stage.buckets[stage.bucket_of[h.parameter]].shared = true;
    }
    const int lowest = placements[list[0].placement].model_stage;
    std::size_t lead = 0;
    while (lead + 1 < list.size() && placements[list[lead + 1].placement].model_stage == lowest)
      ++lead;
    if (lead > 0 && lead + 1 < list.size())
      fail(Code::Unsupported,
           "'{}' is tied, and stage {} stands on this worker more than once; put its replicas on "
           "different workers",
           graph_.parameters[parameter].name, lowest);
    shared_.push_back({std::move(list), lead, false});
  }
}

float* TrainRunner::gradient_of(const Holder& h) {
  const StagePlan& plan = *stages_[h.placement].plan;
  return stages_[h.placement].memory->floats(
      plan.uses[plan.parameters[h.parameter].uses[0]].accumulator);
}

// A copy of a stage that has run no micro-batch of the step adds nothing.
void TrainRunner::clear_unused(Stage& stage) {
  if (std::count(stage.fresh.begin(), stage.fresh.end(), 0) > 0) return;
  for (std::size_t u = 0; u < stage.fresh.size(); ++u) {
    const StageUse& use = stage.plan->uses[u];
    std::fill_n(stage.memory->floats(use.accumulator),
                stage.plan->parameters[use.parameter].elements, 0.0F);
    stage.fresh[u] = 0;
  }
}

// Adds a shared parameter's gradients in model order, within a stage in that of its replicas.
void TrainRunner::join(Shared& shared) {
  if (shared.joined) return;
  shared.joined = true;
  for (const Holder& h : shared.holders) clear_unused(stages_[h.placement]);
  const Holder& first = shared.holders[0];
  const std::int64_t elements = stages_[first.placement].plan->parameters[first.parameter].elements;
  for (std::size_t i = 1; i < shared.holders.size(); ++i)
    add_into(gradient_of(first), gradient_of(shared.holders[i]), elements);
  if (shared.lead > 0)
    std::memcpy(gradient_of(shared.holders[shared.lead]), gradient_of(first),
                static_cast<std::size_t>(elements) * sizeof(float));
}

void TrainRunner::join_all() {
  for (Shared& shared : shared_) {
    join(shared);
    const Holder& lead = shared.holders[shared.lead];
    const auto bytes = static_cast<std::size_t>(
        stages_[lead.placement].plan->parameters[lead.parameter].elements * 4);
    for (const Holder& h : shared.holders)
      if (h.placement != lead.placement) std::memcpy(gradient_of(h), gradient_of(lead), bytes);
  }
}

}  // namespace hetu
