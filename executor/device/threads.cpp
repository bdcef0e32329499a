// Thread counts and parallel copies by OpenMP.
#include "executor/device/threads.h"

#include <omp.h>

#include <algorithm>
#include <cstring>

namespace hetu {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int count) { omp_set_num_threads(count); }

void copy_in_parallel(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t kOfThread = std::int64_t{1} << 20;  // least bytes per thread
  constexpr int kMostThreads = 8;
  if (bytes == 0) return;  // the addresses may be null
  const int parts = static_cast<int>(
      std::clamp<std::int64_t>(bytes / kOfThread, 1, std::min(thread_count(), kMostThreads)));
  const std::int64_t each = ((bytes + parts - 1) / parts + 63) / 64 * 64;
#pragma omp parallel for schedule(static) num_threads(parts) if (parts > 1)
  for (int part = 0; part < parts; ++part) {
    const std::int64_t begin = std::min(bytes, part * each), some = std::min(each, bytes - begin);
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(some));
  }
}

}  // namespace hetu
