// Gradients of what several layers read: products added to one another in one sweep over memory.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Rewrites add(linear_input_grad, g) and add(g, linear_input_grad) -> linear_input_grad_add, bit
/// for bit the same results where kernels round each step. Of two products the later one takes the
/// other in as g: what it is made of is read last there anyway. So along a sum of many gradients,
/// which is made from the left, each addition takes in a product of its own.
///
/// Only nodes of phase InputGrad are joined, only where nothing else reads the product, and only
/// where g is made in its block. There the joined node lies, though the addition lay in the block
/// that makes what is read: so the sum alone crosses to that block, and every cut gives the same
/// kernels. A sum that an earlier block reads, too, as a skip's does, is not moved.
Graph fuse_fork(const Graph& graph);

}  // namespace hetu
