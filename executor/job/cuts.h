// Cuts of a job's pipelines into stages, and the parts that differently cut pipelines share. Used
// by train_plan and job.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/job/job_options.h"
#include "executor/stage/stages.h"
#include "executor/sync/server_weights.h"

namespace hetu {

/// Memory that a worker would need with given cuts: its stage, and the bytes at its peak.
struct PlannedNeed {
  int stage = 0;
  std::int64_t bytes = 0;
};
using NeedOf = std::function<PlannedNeed(const JobOptions& cut, int worker)>;

/// Returns the options with the cuts that follow from their partition and speeds, and with these
/// two cleared. Returns the options unchanged if they set neither. If they set a memory limit, each
/// pipeline's slowest stage is as fast as possible among the cuts that keep to the limit.
/// Partition::By::Blocks ignores the limit. Throws InvalidArgument if no cut keeps to the limit, or
/// for options that do not fit together.
JobOptions partitioned(const Graph& graph, const JobOptions& options, const NeedOf& need_of);

/// Fills in o.first_block, the cut of `pipeline` into `stages` stages. Clears o.cuts if all cuts
/// are equal. Throws InvalidArgument for other numbers of stages or pipelines, and for blocks that
/// the model does not have.
void cut_stages(const Graph& graph, int pipeline, int stages, JobOptions& o);

/// Throws InvalidArgument unless differently cut pipelines can train together. They must share
/// weights over servers by the waves of this plan, no parameter may be tied across two stages, and
/// the same stages must compute the counts.
void check_cuts(const Graph& graph, const JobOptions& o, const Schedule& plan, bool servers);

/// Returns the segments of the job's cuts; empty if all pipelines are cut alike.
std::vector<Segment> segments_of(const Graph& graph, const JobOptions& o);

/// Returns true if the parameters of a segment are not contiguous in the weights of a stage.
bool lies_in_pieces(const Graph& graph, const std::vector<Segment>& segments);

/// The weights of a worker's stage that are shared: `slices` are the offsets of its parameters
/// among `elements` elements in total.
struct SharedStage {
  int pipeline = 0;
  int stage = 0;
  std::vector<ParameterSlice> slices;
  std::int64_t elements = 0;
};

/// Returns the parts of a stage that it shares with the other pipelines of this plan.
std::vector<SharedPart> shared_parts(const Graph& graph, const std::vector<Segment>& segments,
                                     const Schedule& plan, const SharedStage& stage);

}  // namespace hetu
