// Attention whose weights nothing but its own gradient reads.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites attention to fused_attention and attention_grad to fused_attention_grad, so that no
/// weights [batch, heads, queries, keys] are kept from forward to backward: two numbers per row
/// are, and backward makes the weights of a block of rows again. Left as they are: attention whose
/// weights are fetched or read by another node (the gradient of a float mask), and attention under
/// a mask that is itself as large as the weights.
///
/// The same results, bit for bit in float32 where both have a fast row; in bfloat16 the weights are
/// not rounded. Nodes are replaced one by one, so every cut gives the same kernels. Source: Dao et
/// al. 2022, section 3.1 (recomputation).
Graph fuse_attention(const Graph& graph);

}  // namespace hetu
