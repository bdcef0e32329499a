// Tensors of all workers of a job by name, in every worker: what a person looks at between steps.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "executor/state/state_tensor.h"
#include "net/transport/transport.h"

namespace hetu {

/// Float32 values in host memory, dense.
struct HostTensor {
  Shape shape;
  std::vector<float> values;
};

using TensorsByName = std::map<std::string, HostTensor>;

/// The tensors that all workers bring, each once in the job, in every worker; every worker calls
/// it. A worker that was asked for other `names` than worker 0 makes all throw InvalidArgument.
/// Blocks, and needs room for all of them twice.
TensorsByName gather_tensors(const std::vector<StateTensor>& mine,
                             const std::vector<std::string>& names, comm::Transport& transport);

/// Euclidean norms of these tensors, each summed in float64 by the worker that brings it.
std::map<std::string, double> gather_norms(const std::vector<StateTensor>& mine,
                                           comm::Transport& transport);

/// Throws InvalidArgument on all workers, naming the first that differs, if not all give the same
/// text. `what` is in the message: "set_weights".
void check_alike(const std::string& mine, const std::string& what, comm::Transport& transport);

}  // namespace hetu
