// Settings as Python hands them over, dictionaries with the names of its classes' fields.
#pragma once
#include <nanobind/nanobind.h>

#include "executor/job/trainer.h"

namespace hetu {

/// Of hetu.lr. Throws InvalidArgument: an unknown kind.
LearningRate rate_of(const nanobind::dict& d);
/// Of hetu.optim.
OptimizerConfig optimizer_of(const nanobind::dict& d);
/// Of hetu.Executor; what the environment says of kernels and of this worker's place is added.
TrainerOptions trainer_options(const nanobind::dict& d);
/// Of hetu.averaging.Averaging.
Averaging averaging_of(const nanobind::dict& d);
/// Of a training, with the job's servers where the graph has tables there and the job has servers.
TrainerOptions with_servers(const Graph& graph, TrainerOptions o);

}  // namespace hetu
