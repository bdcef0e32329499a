// Fusion of attention whose weights are read only by its own gradient.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites attention to fused_attention, and attention_grad to fused_attention_grad. The weights
/// [batch, heads, queries, keys] are then not kept from forward to backward. Two numbers per row
/// are kept instead, and backward recomputes the weights for one block of rows at a time.
///
/// Two cases stay unchanged: attention whose weights are fetched or read by another node (the
/// gradient of a float mask), and attention with a mask as large as the weights.
///
/// Results are bit-identical in float32 where both operators have a fast kernel. In bfloat16 the
/// weights aren't rounded. Nodes are replaced one by one, so every set of cut-points gives the same
/// kernels. Source: Dao et al. 2022, section 3.1 (recomputation).
Graph fuse_attention(const Graph& graph);

}  // namespace hetu
