// The meaning of the blocks of a cost file in a transformer, as the user states it. Read by exports
// to systems that name the layers of a stage, and by imports from them.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// The content of each block, in the letters of Megatron-LM's layouts: E embedding, t transformer
/// layer, m layer of multi-token prediction, L head and loss. A first block that holds the
/// embedding and a layer is "Et".
using ModelBlocks = std::vector<std::string>;

/// Parses a list such as "embedding,layers,head" for a model of `blocks` blocks. The words
/// embedding, layers, mtp and head stand in this order. Only `layers` is required. `layers` stands
/// for all remaining blocks unless it has a number of its own (layers*12), and `mtp` for one
/// (mtp*2: two). Without embedding, the first block also holds the embedding. Without head, the
/// last one also holds the head. `flag` names the option in errors. Throws InvalidArgument.
ModelBlocks parse_model_blocks(const std::string& text, int blocks, const std::string& flag);

/// Returns the number of blocks' parts with this letter.
int count_of(const ModelBlocks& blocks, char letter);

}  // namespace hetu
