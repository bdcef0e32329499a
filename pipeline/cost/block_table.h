// Reader of tables of measured blocks. Part of cost_file.cpp.
#pragma once
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"

namespace hetu {

/// Returns true if the text of a cost file is a table of measured blocks: a CSV whose first column
/// is "bs".
bool is_block_table(const std::string& text);

/// Returns the costs of a stage from a CSV that begins with "bs,". Each row holds, for one batch
/// size, the times (ms) and memory (MiB) of one block. Throws Config.
Costs costs_of_table(const std::string& text, const std::string& origin, const BlockTable& table);

/// Returns the micro-batch sizes of the rows. Throws Config.
std::vector<int> sizes_of_table(const std::string& text, const std::string& origin);

}  // namespace hetu
