// Parts of a job, derived from its plan.
#pragma once
#include <memory>

#include "executor/job/job_plan.h"
#include "executor/loop/straggler_injector.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

/// Returns the options for the stages of this worker. `plan` must outlive the stages.
StagesOptions stages_options(const JobPlan& plan);

/// Returns the options for the exchange of waves with the servers, for a worker with one stage.
WavesOptions waves_of(const JobPlan& plan, TrainStages& stages);

/// Returns the injector that slows this worker down deliberately, or null. DEBUG_HETERO, a variable
/// of SD-PIPE, replaces --hetero if that is not given; the worker with `speaks` logs it.
std::unique_ptr<StragglerInjector> open_injector(const JobPlan& plan, bool speaks);

/// Warns of stages of an asynchronous plan that share a weight and therefore wait for each other at
/// each update.
void warn_of_ties(const JobPlan& plan);

}  // namespace hetu
