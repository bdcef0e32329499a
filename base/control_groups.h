// Where the limits of this process's control groups stand. Read by the machine_* files beside this.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace hetu {

/// Paths of files that may limit this process, of its own groups and of those around them, as seen
/// from inside a container and from outside: `file` of version 2, and `old_file` of version 1's
/// `controller`. Where a group sets no limit its file need not be there. `root` is put before all
/// of them, and before /proc (tests).
std::vector<std::string> control_group_files(std::string_view file, std::string_view controller,
                                             std::string_view old_file,
                                             const std::string& root = "");

}  // namespace hetu
