// Folding of constants and removal of operators that change nothing.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, bit for bit the same results:
///   reshape of reshape -> one reshape; transpose of transpose -> one transpose;
///   reshape to the same shape, transpose by the identity, scale by 1, cast to the same dtype ->
///   the input; scale or reshape of a fill -> a fill; a fill read in a later block -> a fill of
///   that block.
/// Only nodes of one block and one phase are joined, so every cut gives the same arithmetic.
/// Parameters, fetches, the loss and gradients of parameters keep their nodes. Follow with
/// remove_dead.
Graph fold(const Graph& graph);

}  // namespace hetu
