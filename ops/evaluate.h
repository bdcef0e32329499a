// Evaluation of a whole graph at once, with separate memory for every value. Simple and slow: uses
// the reference kernels, in float64 on request. Tests compare fast and pipelined runs with it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/device.h"
#include "graph/graph.h"

namespace hetu {

/// Elements of tensors by name, as float64 regardless of the dtype in which they were computed.
using NamedTensors = std::map<std::string, std::vector<double>>;

/// Results of evaluate().
struct Evaluation {
  /// The first element of each fetched value.
  std::map<std::string, double> fetches;
  NamedTensors gradients;  ///< per parameter: its uses added in order, before clipping
  NamedTensors buffers;    ///< per buffer: the value that would replace it
};

/// Evaluates one micro-batch of `batch` samples in training mode (dropout with seed 0). `leaves`
/// holds placeholders, parameters and buffers; numbers for integer tensors are rounded. float32
/// values are computed in `floats` (Float32 or Float64) by the kernels of `choice`. Throws
/// InvalidArgument with the leaf's name if a leaf is missing or has another size, and if the graph
/// contains channels-last images.
Evaluation evaluate(const Graph& graph, std::int64_t batch, const NamedTensors& leaves,
                    DType floats, KernelChoice choice = KernelChoice::Reference);

}  // namespace hetu
