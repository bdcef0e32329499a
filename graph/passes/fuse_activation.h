// Fusion of linear layers with the activation that follows them: one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, with bit-identical results where kernels round after each step:
///   relu(linear) -> linear_relu, whose gradient reads the result;
///   gelu(linear) -> linear_gelu, gelu_tanh(linear) -> linear_gelu_tanh, which also keep the output
///   of linear, because the gradient reads it.
/// Only nodes of the same block and phase are joined, so every set of cut-points gives the same
/// kernels.
Graph fuse_activation(const Graph& graph);

}  // namespace hetu
