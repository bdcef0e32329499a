// Fusion of gradients along the skip connections of image networks: two sweeps over memory instead
// of four.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites graphs that fuse_norm has produced, with bit-identical results where kernels round
/// after each step:
///   batch_norm_grad(relu_grad(add)) of a batch_norm_add_relu whose result two nodes read ->
///   batch_norm_add_relu_grad, which also computes the gradient of the skip connection.
/// Only nodes of the same block and phase are joined, so every set of cut-points gives the same
/// kernels.
Graph fuse_skip(const Graph& graph);

}  // namespace hetu
