#include "graph/passes/dead.h"

#include "graph/passes/rewrite.h"

namespace hetu {

Graph remove_dead(const Graph& graph) {
  std::vector<bool> live(graph.nodes.size(), false);
  const auto keep = [&](ValueId v) { live[graph.values[v].producer] = true; };
  for (const auto& [name, v] : graph.fetches) keep(v);
  if (graph.loss != kNone) keep(graph.loss);
  for (const GradientUse& u : graph.gradients) keep(u.gradient);
  for (const StateBuffer& b : graph.buffers) {
    if (b.next != kNone) keep(b.next);
  }
  for (auto id = static_cast<NodeId>(graph.nodes.size()) - 1; id >= 0; --id) {
    if (!live[id]) continue;
    for (const ValueId v : graph.nodes[id].inputs) keep(v);
  }
  GraphRewriter out(graph);
  for (std::size_t id = 0; id < graph.nodes.size(); ++id) {
    if (live[id]) out.copy(static_cast<NodeId>(id));
  }
  Graph result = out.finish();
  check_graph(result);
  return result;
}

}  // namespace hetu
