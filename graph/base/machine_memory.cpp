#include "graph/base/machine_memory.h"

#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace hetu {
namespace {

std::int64_t total_of_meminfo() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::int64_t kib = 0;
  while (file >> key) {
    if (key == "MemTotal:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

// Limits of the control group, as seen from inside a container and from outside; "max" is no number
// and so reads as none.
std::vector<std::string> limit_files() {
  std::vector<std::string> files = {"/sys/fs/cgroup/memory.max",
                                    "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::/", 0) == 0)
      files.push_back("/sys/fs/cgroup" + line.substr(3) + "/memory.max");
  }
  return files;
}

}  // namespace

std::int64_t machine_bytes() {
  std::int64_t least = total_of_meminfo();
  for (const std::string& path : limit_files()) {
    std::ifstream file(path);
    std::int64_t limit = 0;
    if (file >> limit && limit > 0 && (least == 0 || limit < least)) least = limit;
  }
  return least;
}

}  // namespace hetu
