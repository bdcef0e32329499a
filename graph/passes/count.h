// The Count phase: values that a step needs from all its micro-batches before the first forward.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Moves every step_sum, and the nodes that it is computed from, to phase Count. A node that the
/// model reads as well is duplicated, under the name "name/count". Throws InvalidArgument with the
/// names of the step_sum and of the parameter or gradient if a step_sum depends on anything but
/// placeholders and constants.
Graph mark_count_phase(const Graph& graph);

}  // namespace hetu
