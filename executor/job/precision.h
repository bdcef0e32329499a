// The dtype that a job computes in, asked before it starts. Read by train_plan.
#pragma once
#include <string>

#include "graph/graph.h"

namespace hetu {

/// What --dtype may say: "float32"; "tf32", the same with products whose operands a GPU rounds to
/// 11 bits; "bf16" or "fp16", mixed precision by the device's own instructions; "bf16-emulated" or
/// "fp16-emulated", the same where it has none, rounded at the same places and slower than float32.
inline constexpr const char* kDTypes[] = {"float32",       "tf32", "bf16",
                                          "bf16-emulated", "fp16", "fp16-emulated"};
inline constexpr const char* kTf32 = kDTypes[1];

/// Returns true for "bf16-emulated" and "fp16-emulated".
bool is_emulated(const std::string& dtype);

/// Whether its range is so small that gradients want a loss scale: of the two of float16.
bool wants_loss_scale(const std::string& dtype);

/// The training graph with values of that dtype (graph/passes/mixed_precision.h), to be computed on
/// that device. Throws Unsupported, with what the processor lacks, and InvalidArgument for what
/// does not go with it.
Graph in_precision(const Graph& graph, const std::string& dtype, const std::string& device);

/// What --state-dtype says, "float32" or "bf16".
DType state_dtype_of(const std::string& told);

}  // namespace hetu
