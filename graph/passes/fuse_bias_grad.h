// Gradients of a linear layer's weight and bias, made together.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites linear_weight_grad(x, dy) and sum_rows(dy) -> linear_weight_bias_grad, bit for bit the
/// same results where kernels sum as sum_rows does. The joined node stands in the place of the
/// first and has its name; a sum goes to the last product before it that has none.
///
/// Only nodes of phase WeightGrad and of one block are joined, so every cut gives the same kernels.
/// Mixed precision comes before: it may round dy for the product alone, and then nothing is joined.
Graph fuse_bias_grad(const Graph& graph);

}  // namespace hetu
