// All fusion passes that the executor runs with `--fuse`.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Applies fuse_norm, fuse_skip, fuse_attention, fuse_activation, fuse_residual and fuse_fork, in
/// this order. fuse_bias_grad is separate, because it must run after mixed precision.
Graph fused(const Graph& graph);

}  // namespace hetu
