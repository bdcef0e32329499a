#include "base/machine_memory.h"

#include <fstream>
#include <limits>
#include <string>

#include "base/control_groups.h"

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

}  // namespace

std::int64_t machine_bytes() {
  std::int64_t least = total_of_meminfo();
  for (const std::string& path :
       control_group_files("memory.max", "memory", "memory.limit_in_bytes")) {
    std::ifstream file(path);
    std::int64_t limit = 0;  // stays 0 for "max", which is not a number
    if (file >> limit && limit > 0 && (least == 0 || limit < least)) least = limit;
  }
  return least;
}

}  // namespace hetu
