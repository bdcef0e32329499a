#include "graph/passes/rewrite.h"

#include <utility>

#include "base/error.h"

namespace hetu {

std::vector<std::vector<NodeId>> readers_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (std::size_t id = 0; id < graph.nodes.size(); ++id)
    for (const ValueId v : graph.nodes[id].inputs) readers[v].push_back(static_cast<NodeId>(id));
  for (const auto& fetch : graph.fetches) readers[fetch.second].push_back(kNone);
  return readers;
}

GraphRewriter::GraphRewriter(const Graph& from) : from_(from), map_(from.values.size(), kNone) {
  to_.blocks = from.blocks;
  for (const Node& n : from.nodes) names_.insert(n.name);
}

std::vector<ValueId> GraphRewriter::append(Node node, const std::vector<TensorType>& outputs) {
  node.outputs.clear();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    node.outputs.push_back(static_cast<ValueId>(to_.values.size()));
    to_.values.push_back({static_cast<NodeId>(to_.nodes.size()), static_cast<int>(i), outputs[i]});
  }
  to_.nodes.push_back(std::move(node));
  return to_.nodes.back().outputs;
}

void GraphRewriter::copy_as(NodeId old, Node changed) {
  std::vector<TensorType> types;
  for (const ValueId v : from_.nodes[old].outputs) types.push_back(from_.values[v].type);
  const std::vector<ValueId> outputs = append(std::move(changed), types);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const ValueId was = from_.nodes[old].outputs[i];
    to_.values[outputs[i]].layout = from_.values[was].layout;
    replace(was, outputs[i]);
  }
}

void GraphRewriter::copy(NodeId old) {
  Node node = from_.nodes[old];
  for (ValueId& v : node.inputs) v = mapped(v);
  copy_as(old, std::move(node));
}

std::vector<ValueId> GraphRewriter::add(Node node, const std::vector<TensorType>& outputs) {
  const std::string wanted = node.name;
  for (int i = 1; !names_.insert(node.name).second; ++i) {
    node.name = wanted + "_" + std::to_string(i);
  }
  return append(std::move(node), outputs);
}

ValueId GraphRewriter::mapped(ValueId old) const {
  if (map_[old] == kNone) {
    fail(Code::Internal, "graph: a pass removed '{}', which is still read",
         from_.producer(old).name);
  }
  return map_[old];
}

Graph GraphRewriter::finish() {
  std::vector<int> numbers(from_.parameters.size(), kNone);
  for (std::size_t i = 0; i < from_.parameters.size(); ++i) {
    Parameter p = from_.parameters[i];
    if (map_[p.value] == kNone) continue;
    p.value = map_[p.value];
    numbers[i] = static_cast<int>(to_.parameters.size());
    to_.parameters.push_back(std::move(p));
  }
  for (StateBuffer b : from_.buffers) {
    if (map_[b.value] == kNone) continue;
    b.value = map_[b.value];
    if (b.next != kNone) b.next = mapped(b.next);
    to_.buffers.push_back(std::move(b));
  }
  for (const ValueId v : from_.placeholders) {
    if (map_[v] != kNone) to_.placeholders.push_back(map_[v]);
  }
  for (const auto& [name, v] : from_.fetches) {
    const auto other = reported_.find(v);
    to_.fetches.push_back({name, other == reported_.end() ? mapped(v) : other->second});
  }
  if (from_.loss != kNone) to_.loss = mapped(from_.loss);
  for (GradientUse u : from_.gradients) {
    u.gradient = mapped(u.gradient);
    u.parameter = numbers[u.parameter];
    to_.gradients.push_back(u);
  }
  return std::move(to_);
}

}  // namespace hetu
