// A whole graph at once, every value in memory of its own: plain, slow, by the reference kernels
// and in float64 if asked. What fast and pipelined runs are compared with.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/device.h"
#include "graph/graph.h"

namespace hetu {

/// Elements of tensors by name, as float64 whatever they were computed in.
using NamedTensors = std::map<std::string, std::vector<double>>;

struct Evaluation {
  std::map<std::string, double> fetches;
  NamedTensors gradients;  ///< by parameter: its uses added in order; before clipping
  NamedTensors buffers;    ///< what would replace them
};

/// One micro-batch of `batch` samples, training (dropout by seed 0). `leaves` holds placeholders,
/// parameters and buffers; integers are rounded to their type. float32 values are computed in
/// `floats`: Float32 or Float64, by the kernels of `choice`. Throws InvalidArgument, naming the
/// leaf, if one is missing or of another size.
Evaluation evaluate(const Graph& graph, std::int64_t batch, const NamedTensors& leaves,
                    DType floats, KernelChoice choice = KernelChoice::Reference);

}  // namespace hetu
