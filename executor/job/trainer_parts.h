// What a trainer gives its parts, read off its plan.
#pragma once
#include <memory>

#include "executor/job/train_plan.h"
#include "executor/loop/straggler_injector.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

struct StepResult;

/// Of the stages of this worker. `plan` must outlive them.
StagesOptions stages_options(const TrainPlan& plan);

/// To the servers, of the worker's only stage.
WavesOptions waves_of(const TrainPlan& plan, TrainStages& stages);

/// Moves what a worker knows of a step's fetches into its result; `knows`: it has the scalars.
void report_fetches(const Graph& graph, const TrainStages& stages, bool knows, StepReport& report,
                    StepResult& result);

/// Returns what makes this worker a straggler on purpose, or null. DEBUG_HETERO, SD-PIPE's
/// variable, stands for --hetero where that is not given; `speaks`: this worker says so.
std::unique_ptr<StragglerInjector> open_injector(const TrainPlan& plan, bool speaks);

/// Where stages of an asynchronous plan wait for each other at each update.
void warn_of_ties(const TrainPlan& plan);

}  // namespace hetu
