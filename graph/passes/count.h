// The Count phase: what a step must know of all its micro-batches before the first forward.
#pragma once
#include "graph/graph.h"

namespace hetu {

/// Gives every step_sum and what it is computed from the phase Count. A node that the model reads
/// too is made twice ("name/count"). Throws InvalidArgument, naming the step_sum and the parameter
/// or gradient, if one depends on more than placeholders and constants.
Graph mark_count_phase(const Graph& graph);

}  // namespace hetu
