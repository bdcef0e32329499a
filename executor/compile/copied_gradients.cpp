// A copy can be left out under three conditions. Only a sum reads the reshape's result, only the
// reshape reads its input, and the input's producer is in the same function.
#include "executor/compile/copied_gradients.h"

#include <set>

namespace hetu {
namespace {

/// The number of reads of each value by nodes, fetches and gradient sums.
struct Reads {
  std::vector<int> by_nodes, by_fetches, by_sums;

  explicit Reads(const Graph& graph)
      : by_nodes(graph.values.size()),
        by_fetches(graph.values.size()),
        by_sums(graph.values.size()) {
    for (const Node& n : graph.nodes)
      for (const ValueId v : n.inputs) ++by_nodes[v];
    for (const auto& [name, v] : graph.fetches) ++by_fetches[v];
    for (const GradientUse& g : graph.gradients) ++by_sums[g.gradient];
  }
  bool by_sum_alone(ValueId v) const {
    return by_sums[v] == 1 && by_nodes[v] == 0 && by_fetches[v] == 0;
  }
  bool by_node_alone(ValueId v) const {
    return by_nodes[v] == 1 && by_fetches[v] == 0 && by_sums[v] == 0;
  }
};

}  // namespace

CopiedGradients::CopiedGradients(const Graph& graph, const std::vector<NodeId>& nodes) {
  const Reads reads(graph);
  std::set<NodeId> before;
  for (const NodeId id : nodes) {
    const Node& n = graph.nodes[id];
    const bool copies = n.op == "reshape" && n.phase == Phase::WeightGrad &&
                        before.count(graph.values[n.inputs[0]].producer) != 0 &&
                        reads.by_sum_alone(n.outputs[0]) && reads.by_node_alone(n.inputs[0]);
    if (copies)
      copied_by.emplace(n.inputs[0], id);
    else
      list.push_back(id);
    before.insert(id);
  }
}

}  // namespace hetu
