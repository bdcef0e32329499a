// Fusion of layer norms with the residual sum before them: one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, with bit-identical results where kernels round after each step:
///   layer_norm(add(dropout, skip)) -> dropout_add_layer_norm, which also keeps the sum, because
///   the gradient and possibly other nodes read it.
///
///   dropout_grad(layer_norm_input_grad) of such a node -> dropout_add_layer_norm_grad.
///
/// Only nodes of the same block and phase are joined, so every set of cut-points gives the same
/// kernels.
Graph fuse_residual(const Graph& graph);

}  // namespace hetu
