// Linear layers with the activation behind them in one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, bit for bit the same results where kernels round each step:
///   relu(linear) -> linear_relu, whose gradient reads the result;
///   gelu(linear) -> linear_gelu, gelu_tanh(linear) -> linear_gelu_tanh, which keep what linear
///   made, too: the gradient reads it.
/// Only nodes of one block and phase are joined, so every cut gives the same kernels.
Graph fuse_activation(const Graph& graph);

}  // namespace hetu
