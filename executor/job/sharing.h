// Strategies by which the pipelines of a training job share weights: which one the options choose,
// and what each needs of the job (feature.h). Used by make_plan.
#pragma once
#include "executor/job/feature.h"
#include "executor/job/job_plan.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Returns the strategy of the options. `has_tables`: embedding tables are on servers, which is no
/// strategy of its own. Throws InvalidArgument for options of several strategies, and for options
/// that the strategy does not have.
Sharing sharing_of(const JobOptions& options, bool has_tables);

/// Returns the needs of the job's strategy.
Feature sharing_needs(const JobPlan& job);

/// Returns the needs of `--wire`, the dtype in which gradient sums travel.
Feature wire_needs(const JobPlan& job);

/// Returns the needs of `--sums`, the order in which gradients are added.
Feature sums_needs(const JobPlan& job);

/// Returns the needs of `--shares`, pipelines with different numbers of micro-batches.
Feature shares_needs(const JobPlan& job);

/// Returns the copies whose gradients are added in the order of a tree; none with --sums running.
/// Requires the lowered plan. Throws InvalidArgument if an option would change the order or round
/// the terms, and the errors of sum_layout().
SumLayout sums_of(const JobPlan& job);

}  // namespace hetu
