// Where a job's pipelines are cut into stages, and what pipelines that are cut each in its own way
// have in common. Read by train_plan and trainer.
#pragma once
#include <vector>

#include "executor/job/train_plan.h"
#include "executor/stage/stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

/// The options with the cuts that their partition and speeds come to, and these told no more; as
/// they are if none is told. With a limit of memory, each pipeline's slowest stage is as quick as
/// workers that keep to it allow. `fused` is the graph as it will run. Throws InvalidArgument: no
/// cut keeps to the limit, and whatever else does not fit.
TrainerOptions partitioned(const Graph& graph, const OptimizerConfig& optimizer,
                           const TrainerOptions& options, const Graph& fused);

/// Fills in job.options.first_block: the cut of the job's pipeline, of so many stages. Cuts that
/// are alike leave options.cuts empty. Throws InvalidArgument: other numbers of stages or
/// pipelines, blocks that the model does not have.
void cut_stages(TrainPlan& job, int stages);

/// Throws InvalidArgument unless pipelines that are cut each in its own way can train together:
/// they share weights by waves, none is tied over two stages, and the same stages count.
void check_cuts(const TrainPlan& job);

/// The segments of the job's cuts; none where pipelines are cut alike.
std::vector<Segment> segments_of(const TrainPlan& job);

/// Whether some segment's parameters do not follow each other in the weights of a stage.
bool lies_in_pieces(const TrainPlan& job);

/// What this worker's stage shares with other pipelines. `places` are those of its parameters in
/// its weights, `elements` in all.
std::vector<SharedPart> shared_parts(const TrainPlan& job, const std::vector<ParameterPlace>& places,
                                     std::int64_t elements);

}  // namespace hetu
