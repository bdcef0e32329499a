// The lock of an emulated GPU. Its owner may let other threads continue meanwhile, just as one
// stream of a GPU doesn't stop the others.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace hetu::emulator {

/// A recursive lock for one thread at a time. BasicLockable.
class Turn {
 public:
  void lock();
  void unlock();
  /// Calls f with the lock released, however often this thread has taken it.
  void apart(const std::function<void()>& f);
  /// Releases the lock until `done` returns true. `done` is evaluated after each call of changed().
  void until(const std::function<bool()>& done);
  void changed();

 private:
  int leave();
  void take(std::unique_lock<std::mutex>& lock, int depth);

  std::mutex mutex_;
  std::condition_variable free_, changed_;
  std::thread::id owner_;  // default: no owner
  int depth_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace hetu::emulator
