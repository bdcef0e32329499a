#include "base/machine_cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "base/control_groups.h"

namespace hetu {
namespace {

constexpr const char* kQuota = "cpu.cfs_quota_us";

// Returns the limit in cores, rounded up; 0 if there is none. Version 2 has quota and period in one
// file, with "max" for no limit. Version 1 has them in two files, with -1 for no limit.
int limit_of(const std::string& path) {
  std::ifstream file(path);
  std::int64_t quota = 0, period = 0;
  if (!(file >> quota) || quota <= 0) return 0;
  if (path.ends_with(kQuota)) {
    std::ifstream(path.substr(0, path.size() - std::string(kQuota).size()) + "cpu.cfs_period_us") >>
        period;
  } else {
    file >> period;
  }
  return period > 0
             ? static_cast<int>(std::min<std::int64_t>((quota + period - 1) / period, 1 << 20))
             : 0;
}

// Returns the number of processors in this process's affinity mask. The mask grows until it fits,
// because a machine may have more processors than a cpu_set_t holds.
int processors() {
  for (int most = CPU_SETSIZE; most <= 1 << 20; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(most);
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

}  // namespace

int cores_of_control_groups(const std::string& root) {
  int least = 0;
  for (const std::string& path : control_group_files("cpu.max", "cpu", kQuota, root)) {
    const int limit = limit_of(path);
    if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
  }
  return least;
}

int machine_cores() {
  const int limit = cores_of_control_groups();
  return limit > 0 ? std::min(limit, processors()) : processors();
}

}  // namespace hetu
