// Where a job's pipelines are cut into stages, and what pipelines that are cut each in its own way
// have in common. Read by train_plan and trainer.
#pragma once
#include <vector>

#include "executor/job/train_plan.h"
#include "executor/stage/stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

/// Fills in job.options.first_block: the cut of the job's pipeline, of so many stages. Cuts that
/// are alike leave options.cuts empty. Throws InvalidArgument: other numbers of stages or
/// pipelines, blocks that the model does not have.
void cut_stages(TrainPlan& job, int stages);

/// Throws InvalidArgument unless pipelines that are cut each in its own way can train together:
/// they share weights by waves, none is tied over two stages, and the same stages count.
void check_cuts(const TrainPlan& job);

/// The segments of the job's cuts; none where pipelines are cut alike.
std::vector<Segment> segments_of(const TrainPlan& job);

/// What this worker's stage shares with other pipelines. `places` are those of its parameters in
/// its weights, `elements` in all.
std::vector<SharedPart> shared_parts(const TrainPlan& job, const std::vector<ParameterPlace>& places,
                                     std::int64_t elements);

}  // namespace hetu
