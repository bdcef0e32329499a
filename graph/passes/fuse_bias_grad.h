// Fusion of the gradients of a linear layer's weight and bias.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites linear_weight_grad(x, dy) and sum_rows(dy) to linear_weight_bias_grad. Results are
/// bit-identical where kernels sum in the order of sum_rows. The joined node takes the position and
/// the name of the weight gradient. A sum joins the last weight gradient before it that has no sum
/// yet.
///
/// Only nodes of phase WeightGrad and of the same block are joined, so every set of cut-points
/// gives the same kernels. Run mixed precision first: it may round dy for the product only, and
/// then nothing is joined.
Graph fuse_bias_grad(const Graph& graph);

}  // namespace hetu
