// The check of the needs of a job's features (feature.h). Used by make_plan.
#pragma once
#include "executor/job/feature.h"
#include "executor/job/job_plan.h"

namespace hetu {

/// Throws InvalidArgument if the job lacks a trait that the feature needs. The message states the
/// feature, the trait, what the job has instead, and the remedy. Requires the plan of one step and
/// Lowering, and for GradientSums also the lowered plan.
void check_needs(const JobPlan& job, const Feature& feature);

}  // namespace hetu
