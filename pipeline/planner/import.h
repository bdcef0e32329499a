// Plans of other systems, given by the arguments that their users write. `hetu plan --compare-with`
// predicts them beside its own answer.
#pragma once
#include <string>

#include "pipeline/planner/given_plan.h"

namespace hetu {

/// Reads a plan of the form SYSTEM:TEXT. TEXT is split into words as in a shell. The systems are:
/// - megatron: a layout, or a FILE with arguments of Megatron-LM such as a start script, or
///   nothing; then further arguments, which override those of the file. Arguments of the file that
///   don't concern the pipeline are not read.
/// - torch: a FILE.csv of torch.distributed.pipelining, then --partition with the blocks of each
///   stage, and --recompute if the stages recompute their activations.
///
/// Both take --pipelines D (default: the number of workers / stages) and --ranks with the worker of
/// each rank (default: 0,1,2,…). Ranks are numbered stage by stage, as Megatron-LM does.
/// `blocks_are` states what the blocks of the costs are (parse_model_blocks). Throws
/// InvalidArgument, Config, Io, and as `costs`.
GivenPlan parse_given_plan(const std::string& text, const PlanRequest& request,
                           const CostsOfSize& costs, const std::string& blocks_are);

}  // namespace hetu
