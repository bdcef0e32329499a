// The layout of images: channels-last from the first convolution to the last, so that nothing is
// reordered in the middle of a network.
#pragma once
#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

/// Stores images channels-last in a graph with an operator that is worth it (ImageArgs::worth).
/// Marks the images of all operators that support the layout. Inserts the operators `channels_last`
/// and `plain` between these operators and the rest (placeholders, reshapes, …). Parameters, their
/// gradients and buffers stay plain. One choice for the whole graph: it doesn't depend on the
/// cut-points, so the choice of kernels doesn't either.
Graph channels_last(const Graph& graph, const OpSet& ops);

/// Returns the layout of the images that the node's record lists.
Layout image_layout(const Graph& graph, const OpDef& def, const Node& node);

}  // namespace hetu
