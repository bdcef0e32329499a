// The layout of images: channels-last from the first convolution to the last, so that nothing is
// reordered in the middle of a network.
#pragma once
#include "graph/graph.h"
#include "graph/op_def.h"

namespace hetu {

/// In a graph with an operator worth it (ImageArgs::worth), marks the images of all operators that
/// may have them channels-last, and puts the operators `channels_last` and `plain` between them and
/// the others (placeholders, reshapes, …). Parameters, their gradients and buffers stay plain. One
/// choice for the whole graph: it does not depend on cuts, so neither do the kernels.
Graph channels_last(const Graph& graph, const OpSet& ops);

/// The layout of a node's images: that of the ones its record lists.
Layout image_layout(const Graph& graph, const OpDef& def, const Node& node);

}  // namespace hetu
