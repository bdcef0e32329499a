// Gradients of parameters that a function would only copy. Internal to the compiler (compile.cpp).
#pragma once
#include <map>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// What makes a gradient may be of another phase than weight gradients, as a batch norm's, which
/// makes it beside its input's: a reshape copies it then, so that plans may run the two apart. In a
/// function that has both nodes, sums take what would be copied where it is made.
struct CopiedGradients {
  std::vector<NodeId> list;             ///< nodes without such copies
  std::map<ValueId, NodeId> copied_by;  ///< of what would be copied, which nothing else reads

  CopiedGradients(const Graph& graph, const std::vector<NodeId>& nodes);
  /// kNone: a node of the list reads v, or none does.
  NodeId by(ValueId v) const {
    const auto at = copied_by.find(v);
    return at == copied_by.end() ? kNone : at->second;
  }
};

}  // namespace hetu
