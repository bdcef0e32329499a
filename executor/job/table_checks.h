// Checks of tables on parameter servers before a training job starts. Used by make_plan.
#pragma once
#include "executor/job/feature.h"
#include "executor/job/job_plan.h"

namespace hetu {

/// Returns the needs of tables on servers, if the job has any.
Feature table_needs(const JobPlan& job);

/// Throws InvalidArgument for cache settings that the tables or the optimizer don't support, for a
/// job without servers, and for cache settings in a job without such tables.
void check_tables(const JobPlan& job);

}  // namespace hetu
