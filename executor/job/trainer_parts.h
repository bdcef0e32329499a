// Parts of a trainer, derived from its plan.
#pragma once
#include <memory>

#include "executor/job/train_plan.h"
#include "executor/loop/straggler_injector.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

struct StepResult;

/// Returns the options for the stages of this worker. `plan` must outlive the stages.
StagesOptions stages_options(const TrainPlan& plan);

/// Returns the options for the exchange of waves with the servers, for a worker with one stage.
WavesOptions waves_of(const TrainPlan& plan, TrainStages& stages);

/// Moves the fetches of a step from the report into the result. `knows` is true if this worker has
/// the values of scalars; otherwise they become NaN.
void report_fetches(const Graph& graph, const TrainStages& stages, bool knows, StepReport& report,
                    StepResult& result);

/// Returns the injector that slows this worker down deliberately, or null. DEBUG_HETERO, a variable
/// of SD-PIPE, replaces --hetero if that is not given; the worker with `speaks` logs it.
std::unique_ptr<StragglerInjector> open_injector(const TrainPlan& plan, bool speaks);

/// Warns of stages of an asynchronous plan that share a weight and therefore wait for each other at
/// each update.
void warn_of_ties(const TrainPlan& plan);

}  // namespace hetu
