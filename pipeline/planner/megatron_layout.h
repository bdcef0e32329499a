// Layouts of Megatron-LM's option --pipeline-model-parallel-layout, such as "Et*3|t*4|(t|)*2t*2L".
// Source of the form: docs/user-guide/features/pipeline_parallel_layout.md of Megatron-LM.
#pragma once
#include <string>
#include <vector>

#include "pipeline/planner/model_blocks.h"

namespace hetu {

/// The letters of each stage, in the order of the model.
using MegatronLayout = std::vector<std::string>;

/// Parses a layout: stages between '|', X*N for a repeated letter, (…)*N for a repeated part, and
/// commas without meaning. Throws InvalidArgument for an unknown letter, an empty stage, and a
/// layout that doesn't begin with its only E or end with its only L.
MegatronLayout parse_megatron_layout(const std::string& text);

/// Returns the text of a layout, with X*N for three or more equal letters.
std::string to_text(const MegatronLayout& layout);

/// Returns the layout of blocks that are cut at the first blocks of the stages.
MegatronLayout layout_of(const ModelBlocks& blocks, const std::vector<int>& first_block);

/// Returns the first block of each stage of a layout. Throws InvalidArgument if the layout has
/// other layers than the blocks, or if a stage doesn't consist of whole blocks.
std::vector<int> first_blocks_of(const MegatronLayout& layout, const ModelBlocks& blocks);

}  // namespace hetu
