// The number of threads that kernels of the calling thread are prepared for and run on, and
// parallel copies. Layers above the devices don't depend on the threading library.
#pragma once
#include <cstddef>
#include <cstdint>

namespace hetu {

/// Returns the number of threads that kernels of the calling thread may use.
int thread_count();

/// Sets the number of threads for the calling thread, at least 1.
void set_thread_count(int count);

/// Copies host memory with up to 8 of these threads: a single thread can't keep up with a GPU's
/// upload rate.
void copy_in_parallel(std::byte* to, const std::byte* from, std::int64_t bytes);

/// Scope guard that sets the calling thread's thread count and restores it on destruction. 0 leaves
/// it unchanged.
class ScopedThreadCount {
 public:
  explicit ScopedThreadCount(int count) : before_(thread_count()) {
    if (count > 0) set_thread_count(count);
  }
  ~ScopedThreadCount() { set_thread_count(before_); }
  ScopedThreadCount(const ScopedThreadCount&) = delete;
  ScopedThreadCount& operator=(const ScopedThreadCount&) = delete;

 private:
  int before_;
};

}  // namespace hetu
