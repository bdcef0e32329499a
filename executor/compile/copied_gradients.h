// Gradients of parameters that a function would only copy. Internal to the compiler (compile.cpp).
#pragma once
#include <map>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// Finds copies that can be left out. A node of another phase than weight gradient may compute a
/// parameter's gradient: batch norm's, for example, comes with its input gradient. A reshape in the
/// weight gradient phase then copies it, so that plans may run both phases separately. In a
/// function that has both nodes, the sum reads the gradient where it is computed, and the reshape
/// is left out.
struct CopiedGradients {
  std::vector<NodeId> list;  ///< the function's nodes without such copies
  /// By value: the node that would copy it and is its only reader.
  std::map<ValueId, NodeId> copied_by;

  CopiedGradients(const Graph& graph, const std::vector<NodeId>& nodes);
  /// Returns the node that would copy `v`, or kNone.
  NodeId by(ValueId v) const {
    const auto at = copied_by.find(v);
    return at == copied_by.end() ? kNone : at->second;
  }
};

}  // namespace hetu
