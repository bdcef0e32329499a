// Rebuilds a graph node by node, dropping, replacing and adding; ids are renumbered. What every
// pass is written with.
#pragma once
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// By value: the nodes that read it, in ascending order, one that reads it twice twice; and kNone
/// for each fetch.
std::vector<std::vector<NodeId>> readers_of(const Graph& graph);

/// Values called "old" are of the graph given, "new" of the one being made.
class GraphRewriter {
 public:
  /// The graph must outlive the rewriter.
  explicit GraphRewriter(const Graph& from);

  /// Appends a copy of an old node; its old outputs now stand for the new ones.
  void copy(NodeId old);

  /// Appends an old node, changed by the caller (inputs in new numbering); outputs as for copy.
  void copy_as(NodeId old, Node changed);

  /// Appends a node of the caller (inputs in new numbering); returns its outputs. Its name is made
  /// unique by a number.
  std::vector<ValueId> add(Node node, const std::vector<TensorType>& outputs);

  /// The same under the node's own name, which is that of an old node that is not copied.
  std::vector<ValueId> put(Node node, const std::vector<TensorType>& outputs) {
    return append(std::move(node), outputs);
  }

  /// The layout of a new value; plain, or that of the old one copied, unless set.
  void set_layout(ValueId value, Layout layout) { to_.values[value].layout = layout; }
  Layout layout(ValueId value) const { return to_.values[value].layout; }

  /// The dtype of a new value; that of the old one copied, unless set.
  void set_dtype(ValueId value, DType dtype) { to_.values[value].type.dtype = dtype; }
  DType dtype(ValueId value) const { return to_.values[value].type.dtype; }

  /// The type of a new value; that of the old one copied, unless set.
  void set_type(ValueId value, TensorType type) { to_.values[value].type = std::move(type); }

  /// From now on the new value stands for the old one.
  void replace(ValueId old, ValueId value) { map_[old] = value; }

  /// Fetches of the old value report the new one, whatever else stands for it.
  void report_as(ValueId old, ValueId value) { reported_[old] = value; }

  /// The new value of an old one. Throws Internal if its node was dropped.
  ValueId mapped(ValueId old) const;

  /// The graph made: parameters, buffers and placeholders that were copied; fetches, the loss and
  /// gradients mapped.
  Graph finish();

  /// Has each old node written, in order, and gives the graph made, checked.
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
