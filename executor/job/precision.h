// The dtype that a job computes in, asked before it starts. Read by train_plan.
#pragma once
#include <string>

#include "graph/graph.h"

namespace hetu {

/// What --dtype may say: "float32"; "bf16", mixed precision by the processor's own instructions; or
/// "bf16-emulated", the same where it has none, rounded at the same places and slower than float32.
inline constexpr const char* kDTypes[] = {"float32", "bf16", "bf16-emulated"};

/// The training graph with values of that dtype (graph/passes/mixed_precision.h). Throws
/// Unsupported, with what the processor lacks, and InvalidArgument for what does not go with it.
Graph in_precision(const Graph& graph, const std::string& dtype);

}  // namespace hetu
