// Removal of what nothing needs.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// The graph without nodes that reach no fetch, loss, gradient of a parameter or next value of a
/// buffer; such parameters and placeholders go too. Names, blocks and the order of what stays are
/// kept.
Graph remove_dead(const Graph& graph);

}  // namespace hetu
