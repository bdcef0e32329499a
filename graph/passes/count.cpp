#include "graph/passes/count.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/passes/rewrite.h"

namespace hetu {
namespace {

// Returns, for each node, the step_sum that depends on it, or kNone.
std::vector<NodeId> counted_for(const Graph& g) {
  std::vector<NodeId> counted(g.nodes.size(), kNone);
  for (auto id = static_cast<NodeId>(g.nodes.size()) - 1; id >= 0; --id) {
    const Node& n = g.nodes[id];
    if (n.op == "step_sum" && counted[id] == kNone) counted[id] = id;
    if (counted[id] == kNone) continue;
    require(n.op != "parameter" && n.op != "buffer" &&
                (n.phase == Phase::Forward || n.phase == Phase::Count),
            "step_sum '{}': depends on '{}' ({}), but it is computed before the first forward; use "
            "only placeholders and constants",
            g.nodes[counted[id]].name, n.name, n.op);
    for (const ValueId v : n.inputs) counted[g.values[v].producer] = counted[id];
  }
  return counted;
}

// Marks nodes that are read outside the Count phase. A step_sum counts as unused, because the model
// reads its value from the Count phase.
std::vector<bool> used_by_model(const Graph& g, const std::vector<NodeId>& counted) {
  std::vector<bool> used(g.nodes.size(), false);
  for (const auto& [name, v] : g.fetches) used[g.values[v].producer] = true;
  if (g.loss != kNone) used[g.values[g.loss].producer] = true;
  for (auto id = static_cast<NodeId>(g.nodes.size()) - 1; id >= 0; --id) {
    const Node& n = g.nodes[id];
    if (n.op == "step_sum" || (counted[id] != kNone && !used[id])) continue;
    for (const ValueId v : n.inputs) used[g.values[v].producer] = true;
  }
  return used;
}

}  // namespace

Graph mark_count_phase(const Graph& graph) {
  const std::vector<NodeId> counted = counted_for(graph);
  if (std::all_of(counted.begin(), counted.end(), [](NodeId id) { return id == kNone; })) {
    return graph;
  }
  const std::vector<bool> used = used_by_model(graph, counted);
  GraphRewriter out(graph);
  // for an old value that is computed twice: its copy in the Count phase
  std::vector<ValueId> twin(graph.values.size(), kNone);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    const Node& n = graph.nodes[id];
    if (counted[id] == kNone || n.op == "placeholder") {
      out.copy(id);
      continue;
    }
    Node count = n;
    count.phase = Phase::Count;
    for (ValueId& v : count.inputs) v = twin[v] == kNone ? out.mapped(v) : twin[v];
    if (!used[id] || n.op == "step_sum") {
      out.copy_as(id, std::move(count));
      continue;
    }
    std::vector<TensorType> types;
    for (const ValueId v : n.outputs) types.push_back(graph.values[v].type);
    count.name += "/count";
    const std::vector<ValueId> made = out.add(std::move(count), types);
    for (std::size_t o = 0; o < made.size(); ++o) twin[n.outputs[o]] = made[o];
    out.copy(id);
  }
  return out.finish();
}

}  // namespace hetu
