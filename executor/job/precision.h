// The dtype of a job's compute: its names, and checks before the job starts. Used by train_plan.
#pragma once
#include <string>

#include "executor/job/feature.h"
#include "graph/graph.h"

namespace hetu {

/// Values of --dtype. "float32" computes in single precision. "tf32" is the same, but a GPU rounds
/// the operands of matrix products to 11 bits. "bf16" and "fp16" are mixed precision with the
/// device's own instructions. "bf16-emulated" and "fp16-emulated" are for devices that lack these
/// instructions: they round at the same places and are slower than float32.
inline constexpr const char* kDTypes[] = {"float32",       "tf32", "bf16",
                                          "bf16-emulated", "fp16", "fp16-emulated"};
inline constexpr const char* kTf32 = kDTypes[1];

/// Returns true for "bf16-emulated" and "fp16-emulated".
bool is_emulated(const std::string& dtype);

/// Returns true if the range of the dtype is so small that gradients need a loss scale: for the two
/// float16 types.
bool wants_loss_scale(const std::string& dtype);

/// Returns the training graph with values of the given dtype (graph/passes/mixed_precision.h), for
/// the given device. Throws Unsupported, naming what the processor lacks, and InvalidArgument for
/// features that do not support the dtype.
Graph in_precision(const Graph& graph, const std::string& dtype, const std::string& device);

/// Returns the needs of loss scaling, if the dtype uses it: all workers skip an update whose
/// gradients overflow, and know so before the first of them updates.
Feature loss_scale_needs(const std::string& dtype);

/// Returns the needs of `--state-dtype`.
Feature state_dtype_needs(const std::string& state_dtype);

/// Returns the dtype that --state-dtype names: "float32" or "bf16".
DType parse_state_dtype(const std::string& text);

}  // namespace hetu
