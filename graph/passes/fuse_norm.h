// Fusion of batch norms with the operators that follow them: one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, with bit-identical results where kernels round after each step:
///   relu(batch_norm) -> batch_norm_relu, and batch_norm_grad(relu_grad) -> batch_norm_relu_grad;
///   relu(add(batch_norm, skip)) -> batch_norm_add_relu.
/// Only nodes of the same block are joined, and only if nothing else reads the values between them.
/// So every set of cut-points gives the same kernels.
Graph fuse_norm(const Graph& graph);

}  // namespace hetu
