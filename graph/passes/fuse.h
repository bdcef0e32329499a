// Every fusing pass, as the executor runs them (`--fuse`).
#pragma once
#include "graph/graph.h"

namespace hetu {

/// What a device runs of a graph: fuse_norm, and fuse_skip, fuse_attention, fuse_activation and
/// fuse_residual where it `has` kernels for what they make.
Graph fused(const Graph& graph, bool has);

}  // namespace hetu
