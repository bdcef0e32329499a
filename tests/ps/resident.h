// The resident memory of a process; used by the tests of ps/.
#pragma once
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace hetu::ps {

/// Returns megabytes (10^6 bytes).
inline double resident_MB(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

/// Returns the memory of this process, without the memory that the allocator can return.
inline double own_resident_MB() {
  malloc_trim(0);
  return resident_MB(getpid());
}

}  // namespace hetu::ps
