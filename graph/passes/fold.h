// Constant folding and removal of operators that change nothing.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, with bit-identical results:
///   reshape of reshape -> one reshape; transpose of transpose -> one transpose;
///   reshape to the same shape, identity transpose, scale by 1, cast to the same dtype -> the
///   input; scale or reshape of a fill -> a fill; a fill read in a later block -> a fill of that
///   block.
/// Only nodes of the same block and phase are merged, so the arithmetic is the same for every set
/// of cut-points. Parameters, fetches, the loss and gradients of parameters keep their nodes. Call
/// remove_dead afterwards.
Graph fold(const Graph& graph);

}  // namespace hetu
