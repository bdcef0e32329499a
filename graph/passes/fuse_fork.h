// Fusion of products into sums of gradients, for values that several layers read.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites add(linear_input_grad, g) and add(g, linear_input_grad) to linear_input_grad_add.
/// Results are bit-identical where kernels round after each step. If both sides are products, the
/// addition absorbs the later one, and the earlier one is g. A sum of many gradients is built from
/// left to right, so each addition absorbs a product of its own.
///
/// Only nodes of phase InputGrad are joined, only if nothing else reads the product, and only if g
/// is computed in the product's block. The joined node moves to that block, although the addition
/// was in the block that computes the shared value. So only the sum crosses to that block, and
/// every set of cut-points gives the same kernels. A sum that an earlier block reads as well (a
/// skip connection's) isn't moved.
Graph fuse_fork(const Graph& graph);

}  // namespace hetu
