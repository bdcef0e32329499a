// The lock of an emulated card: whoever has it may let others go on meanwhile, as one stream of a
// card does not stop the others.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace hetu::emulator {

/// One thread at a time, which may take it again. BasicLockable.
class Turn {
 public:
  void lock();
  void unlock();
  /// Calls f while others may have it, however often this thread has taken it.
  void apart(const std::function<void()>& f);
  /// Lets others have it until `done`, which is asked whenever changed() was called.
  void until(const std::function<bool()>& done);
  void changed();

 private:
  int leave();
  void take(std::unique_lock<std::mutex>& lock, int depth);

  std::mutex mutex_;
  std::condition_variable free_, changed_;
  std::thread::id owner_;  // the default: nobody
  int depth_ = 0;
  std::uint64_t changes_ = 0;
};

}  // namespace hetu::emulator
