// Batch norms with what follows them in one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites, bit for bit the same results where kernels round each step:
///   relu(batch_norm) -> batch_norm_relu, and batch_norm_grad(relu_grad) -> batch_norm_relu_grad;
///   relu(add(batch_norm, skip)) -> batch_norm_add_relu.
/// Only nodes of one block are joined, and only where nothing else reads what lies between, so
/// every cut gives the same kernels.
Graph fuse_norm(const Graph& graph);

}  // namespace hetu
