// Reads the group log that the coordinator and `hetu simulate --group-log` write.
#pragma once
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::cli {

/// The groups of a log, in its order. Throws Io, naming the line and what is wrong with it.
std::vector<groups::Decision> read_group_log(const std::string& path);

}  // namespace hetu::cli
