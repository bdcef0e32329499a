// A backward reads a saved value for the last time at some launch. From then on, the value's range
// in the micro-batch's slot is free for buffers of later launches. The saved values with their last
// reads are therefore fixed buffers, and the function's buffers are placed beside them in the same
// slot. A few kernels may also write their result over an input that they read last
// (OpDef::overwrites).
#include "executor/compile/local_places.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "ops/registry.h"

namespace hetu {
namespace {

constexpr int kForever = std::numeric_limits<int>::max();

// Returns the values of forward that may be read at any time: messages in flight, fetches, and the
// next values of buffers.
std::set<ValueId> seen_outside(const Graph& graph, const StagePlan& plan) {
  std::set<ValueId> out;
  for (const Boundary& b : plan.boundaries)
    for (const BoundaryValue& v : b.values) out.insert(v.value);
  for (const StageFetch& f : plan.fetches) out.insert(f.value);
  for (const StageBuffer& b : plan.buffers) out.insert(graph.buffers[b.buffer].next);
  return out;
}

/// A saved value in its slot, in use until the launch that reads it last; -1: no launch reads it.
struct SavedLife {
  ValueId value;
  Placed at;
};

std::vector<SavedLife> saved_lives(const Graph& graph, const StagePlacement& placement,
                                   const std::vector<NodeId>& list, Spent spent) {
  const std::set<ValueId> outside = seen_outside(graph, placement.plan);
  std::vector<SavedLife> out;
  std::int64_t at = 0;
  for (const ValueId v : placement.saved) {
    int last = -1;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::vector<ValueId>& inputs = graph.nodes[list[i]].inputs;
      if (std::count(inputs.begin(), inputs.end(), v) != 0) last = static_cast<int>(i);
    }
    const bool read_later = spent == Spent::Inputs && placement.nodes.in_weight_grad(v);
    if (read_later || outside.count(v) != 0) last = kForever;
    out.push_back({v, {{0, last, placement.bytes(v)}, at}});
    at += placement.bytes(v);
  }
  return out;
}

// Returns the saved value that `v` may be written over, because the node that computes `v` reads it
// last. Returns nullptr if there is no such value.
const Placed* written_over(const Graph& graph, const std::vector<SavedLife>& saved, ValueId v,
                           const Lifetime& life) {
  const Node& node = graph.producer(v);
  const int input = op_set().find(node.op).overwrites;
  if (input < 0 || node.outputs[0] != v) return nullptr;
  for (const SavedLife& s : saved)
    if (s.value == node.inputs[input] && s.at.life.last == life.first &&
        s.at.life.bytes == life.bytes)
      return &s.at;
  return nullptr;
}

// Returns offsets within a slot; -1 for buffers that don't fit.
std::vector<std::int64_t> within_saved(const Graph& graph, const std::vector<SavedLife>& saved,
                                       const std::vector<Lifetime>& lifetimes,
                                       const std::vector<ValueId>& values, std::int64_t slot) {
  std::vector<Placed> placed;
  for (const SavedLife& s : saved)
    if (s.at.life.last >= 0) placed.push_back(s.at);
  std::vector<std::int64_t> out(lifetimes.size(), -1);
  std::vector<std::size_t> others;
  std::vector<Lifetime> lives;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Placed* over =
        values[i] == kNone ? nullptr : written_over(graph, saved, values[i], lifetimes[i]);
    if (over != nullptr) {
      out[i] = over->offset;
      placed.push_back({lifetimes[i], over->offset});
    } else {
      others.push_back(i);
      lives.push_back(lifetimes[i]);
    }
  }
  const std::vector<std::int64_t> found = offsets_beside(std::move(placed), slot, lives);
  for (std::size_t k = 0; k < others.size(); ++k) out[others[k]] = found[k];
  return out;
}

}  // namespace

LocalPlaces place_locals(const Graph& graph, const StagePlacement& placement,
                         const std::vector<NodeId>& list, const std::vector<Lifetime>& lifetimes,
                         const std::vector<ValueId>& values, Spent spent) {
  std::vector<std::int64_t> within(lifetimes.size(), -1);
  const std::vector<ValueId>& saved = placement.saved;
  if (spent != Spent::Nothing && !saved.empty())
    within = within_saved(graph, saved_lives(graph, placement, list, spent), lifetimes, values,
                          placement.plan.memory.saved);
  std::vector<Lifetime> rest;
  for (std::size_t i = 0; i < lifetimes.size(); ++i)
    if (within[i] < 0) rest.push_back(lifetimes[i]);
  LocalPlaces out;
  const std::vector<std::int64_t> offsets = assign_offsets(rest, &out.scratch_bytes);
  std::size_t next = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    if (within[i] < 0) {
      out.places.push_back({Region::Scratch, kNoRing, offsets[next++], 0});
      continue;
    }
    Loc loc = placement.place(saved[0]);
    loc.offset += within[i];
    out.places.push_back(loc);
  }
  return out;
}

}  // namespace hetu
