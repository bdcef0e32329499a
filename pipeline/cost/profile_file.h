// Profiles: the costs of one model's blocks for several micro-batch sizes. `hetu profile` writes
// them, and the planner reads them.
#pragma once
#include <map>
#include <string>

#include "pipeline/cost/cost.h"

namespace hetu {

/// Costs with blocks, by the number of samples in a micro-batch.
using Profile = std::map<int, Costs>;

/// Returns true if the text is a profile: a JSON object with the key "micro_batch_sizes".
bool is_profile(const std::string& text);

/// Reads a profile: {"micro_batch_sizes": {"1": COSTS, "2": COSTS, …}}, where COSTS is a cost file
/// with blocks. Further keys of the object are descriptions and are not read. Throws Config if the
/// costs lack blocks, or if their numbers of blocks differ.
Profile parse_profile(const std::string& text, const std::string& origin);

/// Returns the costs of a micro-batch size. Throws Config with the sizes that the profile has.
const Costs& costs_of_size(const Profile& profile, int micro_batch_size, const std::string& origin);

}  // namespace hetu
