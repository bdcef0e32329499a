// Access to a training between two steps: weights and gradients of the whole model by name.
// Python's Executor is built on it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/named_values.h"
#include "executor/job/job.h"
#include "executor/state/gather_tensors.h"

namespace hetu {

/// Returns weights and buffers as a checkpoint written at this moment would hold them, without
/// tables on servers. `names` selects tensors; empty means all. Collective: every worker calls it
/// and receives all values. Throws InvalidArgument in the middle of a run without a flush, for a
/// name that the model does not have, and for a table on servers.
TensorsByName weights_of(Job& job, const std::vector<std::string>& names);

/// As weights_of, for the gradient sums of the last step, before clipping. Also throws
/// InvalidArgument if no step was done.
TensorsByName gradients_of(const Job& job, const std::vector<std::string>& names);

/// Returns the Euclidean norms of these gradients. Only norms are sent.
NamedValues<double> gradient_norms_of(const Job& job);

/// Replaces the values of weights and buffers. Every worker passes the same values and takes those
/// that its stages hold. Optimizer states and the step are unchanged. Throws InvalidArgument,
/// before anything has changed, as weights_of, for shapes that differ (both are named), and if
/// workers pass different values. The job's twin takes the values, too.
void set_weights(Job& job, const TensorsByName& values);

}  // namespace hetu
