// Gradients along the skip connections of image networks in two sweeps over memory for four.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites what fuse_norm made, bit for bit the same results where kernels round each step:
///   batch_norm_grad(relu_grad(add)), of a batch_norm_add_relu whose result two nodes read ->
///   batch_norm_add_relu_grad, which makes what the skip gets, too.
/// Only nodes of one block and phase are joined, so every cut gives the same kernels.
Graph fuse_skip(const Graph& graph);

}  // namespace hetu
