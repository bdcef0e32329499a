// The tool that passes use: rebuilds a graph node by node, and drops, replaces or adds nodes. Ids
// are renumbered.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// Returns, for each value, the nodes that read it in ascending order. A node that reads the value
/// twice is listed twice. Each fetch adds a kNone.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

/// Builds a new graph from an old one. "Old" values and nodes belong to the given graph, "new" ones
/// to the result.
class GraphRewriter {
 public:
  /// The graph must outlive the rewriter.
  explicit GraphRewriter(const Graph& from);

  /// Appends a copy of an old node. The copy's outputs replace the old ones.
  void copy(NodeId old);

  /// Appends a changed version of an old node. Its inputs are new values; its outputs replace the
  /// old ones.
  void copy_as(NodeId old, Node changed);

  /// Appends a node whose inputs are new values, and returns its outputs. A number makes its name
  /// unique.
  std::vector<ValueId> add(Node node, const std::vector<TensorType>& outputs);

  /// As above, but keeps the node's name, which must be that of an old node that isn't copied.
  std::vector<ValueId> put(Node node, const std::vector<TensorType>& outputs) {
    return append(std::move(node), outputs);
  }

  /// Sets the layout of a new value. Default: plain, or the layout of the old value that was
  /// copied.
  void set_layout(ValueId value, Layout layout) { to_.values[value].layout = layout; }
  Layout layout(ValueId value) const { return to_.values[value].layout; }

  /// Sets the dtype of a new value. Default: that of the old value that was copied.
  void set_dtype(ValueId value, DType dtype) { to_.values[value].type.dtype = dtype; }
  DType dtype(ValueId value) const { return to_.values[value].type.dtype; }

  /// Sets the type of a new value. Default: that of the old value that was copied.
  void set_type(ValueId value, TensorType type) { to_.values[value].type = std::move(type); }

  /// Makes the new value the replacement of the old one from here on.
  void replace(ValueId old, ValueId value) { map_[old] = value; }

  /// Makes fetches of the old value report the new one, regardless of `replace`.
  void report_as(ValueId old, ValueId value) { reported_[old] = value; }

  /// Returns the replacement of an old value. Throws Internal if its node was dropped.
  ValueId mapped(ValueId old) const;

  /// Returns the new graph: the parameters, buffers and placeholders that were copied, with
  /// fetches, the loss and gradients mapped to new values.
  Graph finish();

  /// Calls `write` for each old node in order, and returns the new graph after check_graph.
  template <class Write>
  Graph write_each(const Write& write) {
    for (std::size_t id = 0; id < from_.nodes.size(); ++id) write(static_cast<NodeId>(id));
    Graph result = finish();
    check_graph(result);
    return result;
  }

 private:
  std::vector<ValueId> append(Node node, const std::vector<TensorType>& outputs);

  const Graph& from_;
  Graph to_;
  std::vector<ValueId> map_;
  std::map<ValueId, ValueId> reported_;
  std::set<std::string> names_;
};

}  // namespace hetu
