// Every fusing pass, as the executor runs them (`--fuse`).
#pragma once
#include "graph/graph.h"

namespace hetu {

/// What a device runs of a graph: fuse_norm, fuse_skip, fuse_attention, fuse_activation,
/// fuse_residual and fuse_fork. fuse_bias_grad is apart: it comes after mixed precision.
Graph fused(const Graph& graph);

}  // namespace hetu
