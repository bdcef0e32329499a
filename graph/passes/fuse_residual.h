// Layer norms of a residual sum in one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, bit for bit the same results where kernels round each step:
///   layer_norm(add(dropout, skip)) -> dropout_add_layer_norm, which keeps the sum, too: the
///   gradient reads it, and so may others;
///   dropout_grad(layer_norm_input_grad), of such a node -> dropout_add_layer_norm_grad.
/// Only nodes of one block and phase are joined, so every cut gives the same kernels.
Graph fuse_residual(const Graph& graph);

}  // namespace hetu
