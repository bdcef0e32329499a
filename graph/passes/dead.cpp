#include "graph/passes/dead.h"

#include <algorithm>

#include "base/error.h"
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
  return out.write_each([&](NodeId id) {
    if (live[id]) out.copy(id);
  });
}

std::vector<char> needed_for(const Graph& graph, const std::vector<ValueId>& values) {
  std::vector<char> needed(graph.nodes.size(), 0);
  for (const ValueId v : values) needed[graph.values[v].producer] = 1;
  for (auto id = static_cast<NodeId>(graph.nodes.size()) - 1; id >= 0; --id) {
    if (needed[id] == 0) continue;
    for (const ValueId v : graph.nodes[id].inputs) needed[graph.values[v].producer] = 1;
  }
  return needed;
}

std::vector<ValueId> fetched_values(const Graph& graph, const std::vector<std::string>& names) {
  std::vector<ValueId> values;
  for (const std::string& name : names) {
    const auto found = std::find_if(graph.fetches.begin(), graph.fetches.end(),
                                    [&](const auto& fetch) { return fetch.first == name; });
    if (found == graph.fetches.end()) {
      std::string known;
      for (const auto& fetch : graph.fetches) known += (known.empty() ? "" : ", ") + fetch.first;
      fail(Code::InvalidArgument, "unknown fetch '{}'; the fetches are: {}", name, known);
    }
    values.push_back(found->second);
  }
  return values;
}

std::vector<ValueId> needed_in_training(const Graph& graph) {
  std::vector<ValueId> values;
  if (graph.loss != kNone) values.push_back(graph.loss);
  for (const auto& fetch : graph.fetches)
    if (graph.values[fetch.second].type == TensorType{}) values.push_back(fetch.second);
  for (const GradientUse& use : graph.gradients) values.push_back(use.gradient);
  for (const StateBuffer& b : graph.buffers)
    if (b.next != kNone) values.push_back(b.next);
  return values;
}

std::vector<ValueId> needed_in_run(const Graph& graph, bool training,
                                   const std::vector<ValueId>& values) {
  if (training) return needed_in_training(graph);
  std::vector<ValueId> wanted = values;
  if (values.empty())
    for (const auto& fetch : graph.fetches) wanted.push_back(fetch.second);
  return wanted;
}

std::vector<std::string> fields_for(const Graph& graph, const std::vector<ValueId>& values) {
  const std::vector<char> needed = needed_for(graph, values);
  std::vector<std::string> names;
  for (const ValueId v : graph.placeholders)
    if (needed[graph.values[v].producer] != 0) names.push_back(graph.producer(v).name);
  return names;
}

Graph part_for(const Graph& graph, const std::vector<std::string>& names) {
  const std::vector<char> needed = needed_for(graph, fetched_values(graph, names));
  Graph part = graph;
  std::erase_if(part.fetches, [&](const auto& fetch) {
    return std::find(names.begin(), names.end(), fetch.first) == names.end();
  });
  part.loss = kNone;
  part.gradients.clear();
  // Drops buffers whose values nothing needs. remove_dead() removes the nodes that read them.
  std::erase_if(part.buffers,
                [&](const StateBuffer& b) { return needed[graph.values[b.value].producer] == 0; });
  return remove_dead(part);
}

}  // namespace hetu
