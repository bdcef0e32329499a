// From a graph, an optimizer and options to the proved and compiled plan of one worker.
#pragma once
#include <vector>

#include "executor/job/train_plan.h"

namespace hetu {

/// Plans, proves and compiles for one worker. Nothing else is asked: the same arguments give the
/// same plan, except for scratch of kernels where options.threads leaves their number to OpenMP.
/// Throws InvalidArgument (sizes that do not fit, stragglers and averages that do not fit the
/// job, a plan over the memory limit), Unsupported, Plan.
TrainPlan make_plan(const Graph& graph, const OptimizerConfig& optimizer,
                    const TrainerOptions& options, const Seat& seat);

/// First block of each of `stages` stages such that the most expensive stage is as cheap as
/// possible, by FLOPs of forward and backward. Throws InvalidArgument, naming how many stages the
/// cut-points allow, if there are fewer blocks than stages.
std::vector<int> balance_stages(const Graph& graph, int stages);

}  // namespace hetu
