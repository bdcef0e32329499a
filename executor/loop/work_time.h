// The time that this process has spent in compute instructions, for heturun's search for slow
// workers (python/hetu/launch/slow.py).
#pragma once
#include <atomic>
#include <cstdint>

namespace hetu {

/// A sum over all workers of this process, which never restarts. It excludes waits for messages and
/// instructions of devices with a queue, whose end the loop doesn't wait for.
class WorkTime {
 public:
  static void add(std::int64_t ns) { total_.fetch_add(ns, std::memory_order_relaxed); }
  /// Returns nanoseconds.
  static std::int64_t total() { return total_.load(std::memory_order_relaxed); }

 private:
  inline static std::atomic<std::int64_t> total_{0};
};

}  // namespace hetu
