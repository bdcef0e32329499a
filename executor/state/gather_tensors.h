// Gathers tensors of all workers of a job by name, in every worker, for inspection between steps.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/named_values.h"
#include "executor/state/state_tensor.h"
#include "net/transport/transport.h"

namespace hetu {

/// Dense float32 values in host memory.
struct HostTensor {
  Shape shape;
  std::vector<float> values;
};

using TensorsByName = NamedValues<HostTensor>;

/// Gathers the tensors of all workers, each of which occurs once in the job, in every worker.
/// Collective: every worker calls it. Throws InvalidArgument on all workers if a worker passes
/// other `names` than worker 0. Blocks, and needs memory for twice the size of all tensors.
TensorsByName gather_tensors(const std::vector<StateTensor>& mine,
                             const std::vector<std::string>& names, comm::Transport& transport);

/// As gather_tensors, for Euclidean norms. Each norm is summed in float64 by the worker that holds
/// the tensor.
std::map<std::string, double> gather_norms(const std::vector<StateTensor>& mine,
                                           comm::Transport& transport);

/// Throws InvalidArgument on all workers unless all pass the same text, naming the first worker
/// that differs. `what` names the operation in the message, such as "set_weights".
void check_alike(const std::string& mine, const std::string& what, comm::Transport& transport);

}  // namespace hetu
