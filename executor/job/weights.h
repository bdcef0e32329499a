// What a person sees of a training between two steps, and changes in it: weights and gradients of
// the whole model by name. Python's Executor stands on it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "executor/job/trainer.h"
#include "executor/state/gather_tensors.h"

namespace hetu {

/// Weights and buffers as a checkpoint of now would hold them, without tables on servers; of all
/// that have these `names`, or of all (none given). Every worker calls it, and each gets all.
/// Throws InvalidArgument: in the middle of a run without a flush, a name that the model has not,
/// a table on servers.
TensorsByName weights_of(Trainer& trainer, const std::vector<std::string>& names,
                         comm::Transport& transport);

/// Gradient sums of the last step, before clipping; otherwise the same. Throws InvalidArgument too
/// where no step was done.
TensorsByName gradients_of(const Trainer& trainer, const std::vector<std::string>& names,
                           comm::Transport& transport);

/// Their Euclidean norms; only these are sent.
std::map<std::string, double> gradient_norms_of(const Trainer& trainer, comm::Transport& transport);

/// Puts values in the place of weights and buffers: every worker gives the same, and each takes
/// what its stages hold. Optimizer states and the step stay. Throws InvalidArgument, before
/// anything has changed: as weights_of, other shapes (both are named), workers that give different
/// values. `trainers`: of this worker, all of which take them.
void set_weights(const std::vector<Trainer*>& trainers, const TensorsByName& values,
                 comm::Transport& transport);

}  // namespace hetu
