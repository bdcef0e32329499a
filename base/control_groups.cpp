// Finds the files with limits from /proc/self/cgroup, whose lines are number:controllers:path:
//
//   version 2   0::/a/b               /sys/fs/cgroup/cpu.max, …/a/cpu.max, …/a/b/cpu.max
//   version 1   4:cpu,cpuacct:/a/b    /sys/fs/cgroup/cpu/cpu.cfs_quota_us, …/cpu/a/…, …/cpu/a/b/…
//
// Inside a container the mount often shows only the container's own group, at the top. So the top
// is always included, and a missing file counts as no limit.
#include "base/control_groups.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

namespace hetu {
namespace {

bool names(const std::string& controllers, std::string_view one) {
  std::istringstream words(controllers);
  for (std::string word; std::getline(words, word, ',');)
    if (word == one) return true;
  return false;
}

// Appends `mount`/FILE, and the same file of each group on the path. `path` begins with a slash.
void add(const std::string& mount, const std::string& path, std::string_view file,
         std::vector<std::string>& to) {
  for (std::size_t end = 0; end != std::string::npos; end = path.find('/', end + 1))
    to.push_back(mount + path.substr(0, end) + '/' + std::string(file));
  if (path.size() > 1) to.push_back(mount + path + '/' + std::string(file));
}

}  // namespace

std::vector<std::string> control_group_files(std::string_view file, std::string_view controller,
                                             std::string_view old_file, const std::string& root) {
  std::vector<std::string> found;
  std::ifstream groups(root + "/proc/self/cgroup");
  const std::string mounts = root + "/sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {  // the fields are number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers.empty()) {
      add(mounts, path, file, found);
      add(mounts + "/unified", path, file, found);
    } else if (names(controllers, controller)) {
      add(fmt::format("{}/{}", mounts, controller), path, old_file, found);
      if (controllers != controller)
        add(fmt::format("{}/{}", mounts, controllers), path, old_file, found);
    }
  }
  return found;
}

}  // namespace hetu
