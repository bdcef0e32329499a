// Paths of the files that hold the limits of this process's control groups. Read by machine_cores
// and machine_memory.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Returns the paths of files that may limit this process. They belong to its own groups and to
/// their parents, as seen from inside and from outside a container. `file` is the name in version 2
/// of control groups, and `old_file` the name in version 1's `controller`. A file may be missing if
/// its group sets no limit. `root` is a prefix of all paths and of /proc, for tests.
std::vector<std::string> control_group_files(std::string_view file, std::string_view controller,
                                             std::string_view old_file,
                                             const std::string& root = "");

}  // namespace hetu
