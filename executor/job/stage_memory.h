// The memory that stages were compiled for, as part of a worker's trace. It corrects the bytes of a
// model's blocks, which follow from the graph alone.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "executor/compile/plan.h"
#include "pipeline/cost/cost.h"

namespace hetu {

/// Returns the bytes of a worker's stages as a JSON list: stage, packed (weights in the form that
/// products read), saved (per micro-batch), scratch (working memory).
std::string memory_json(const WorkerMemory& memory);

/// Corrects the blocks by the stages that hold them, as memory_json() in the metadata of all
/// workers' traces gives them: packed weights are shared out by the blocks' weights, activations
/// are scaled to what a stage saves, and the working memory of a block is that of its stage.
/// `first_block` is the first block of each stage. Stages without an entry stay as they are.
void correct_memory(std::vector<BlockCost>& blocks, const std::vector<int>& first_block,
                    const std::vector<Trace>& workers);

}  // namespace hetu
