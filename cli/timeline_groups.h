// Reads the group log that the coordinator and `hetu simulate --group-log` write.
#pragma once
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::cli {

/// Returns the groups of a log, in its order. Throws Io, and names the line and its fault.
std::vector<groups::Decision> read_group_log(const std::string& path);

}  // namespace hetu::cli
