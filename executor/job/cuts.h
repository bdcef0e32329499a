// Where a job's pipelines are cut into stages, and what pipelines that are cut each in its own way
// have in common. Read by train_plan and trainer.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/job/train_options.h"
#include "executor/stage/stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

/// What a worker of a job with such cuts would need: its stage, and bytes at its peak.
struct PlannedNeed {
  int stage = 0;
  std::int64_t bytes = 0;
};
using NeedOf = std::function<PlannedNeed(const TrainerOptions& cut, int worker)>;

/// The options with the cuts that their partition and speeds come to, and these told no more; as
/// they are if none is told. With a limit of memory, each pipeline's slowest stage is as quick as
/// workers that keep to it allow. Throws InvalidArgument: no cut keeps to the limit, and whatever
/// else does not fit.
TrainerOptions partitioned(const Graph& graph, const TrainerOptions& options,
                           const NeedOf& need_of);

/// Fills in o.first_block: the cut of that pipeline, of so many stages. Cuts that are alike leave
/// o.cuts empty. Throws InvalidArgument: other numbers of stages or pipelines, blocks that the
/// model does not have.
void cut_stages(const Graph& graph, int pipeline, int stages, TrainerOptions& o);

/// Throws InvalidArgument unless pipelines that are cut each in its own way can train together:
/// they share weights over servers, by the waves of this plan, none is tied over two stages, and
/// the same stages count.
void check_cuts(const Graph& graph, const TrainerOptions& o, const Schedule& plan, bool servers);

/// The segments of the job's cuts; none where pipelines are cut alike.
std::vector<Segment> segments_of(const Graph& graph, const TrainerOptions& o);

/// Whether some segment's parameters do not follow each other in the weights of a stage.
bool lies_in_pieces(const Graph& graph, const std::vector<Segment>& segments);

/// Where the weights of a worker's stage lie that is to share them: `places` are those of its
/// parameters, among so many elements in all.
struct SharedStage {
  int pipeline = 0;
  int stage = 0;
  std::vector<ParameterPlace> places;
  std::int64_t elements = 0;
};

/// What a stage shares with other pipelines of this plan.
std::vector<SharedPart> shared_parts(const Graph& graph, const std::vector<Segment>& segments,
                                     const Schedule& plan, const SharedStage& stage);

}  // namespace hetu
