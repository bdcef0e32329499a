// Conversion of settings from Python: dictionaries whose keys are the names of the fields of
// Python's classes.
#pragma once
#include <nanobind/nanobind.h>

#include "executor/job/job.h"

namespace hetu {

/// Returns the learning rate of a hetu.lr object. Throws InvalidArgument for an unknown kind.
LearningRate rate_of(const nanobind::dict& d);
/// Returns the configuration of a hetu.optim object.
OptimizerConfig optimizer_of(const nanobind::dict& d);
/// Returns the options of a hetu.Executor. Adds the environment's choice of kernels and, for
/// averaging, this worker's position.
JobOptions job_options(const nanobind::dict& d);
/// Returns the configuration of a hetu.averaging.Averaging object.
Averaging averaging_of(const nanobind::dict& d);
/// Returns `o` with the job's servers, if the graph has tables on servers and the job has servers.
JobOptions with_servers(const Graph& graph, JobOptions o);

}  // namespace hetu
