#include "tests/emulator/turn.h"

#include <utility>

namespace hetu::emulator {

// The caller holds mutex_, also for take().
int Turn::leave() {
  owner_ = {};
  free_.notify_one();
  return std::exchange(depth_, 0);
}

void Turn::take(std::unique_lock<std::mutex>& lock, int depth) {
  free_.wait(lock, [&] { return owner_ == std::thread::id(); });
  owner_ = std::this_thread::get_id();
  depth_ = depth;
}

void Turn::lock() {
  std::unique_lock lock(mutex_);
  if (owner_ == std::this_thread::get_id())
    ++depth_;
  else
    take(lock, 1);
}

void Turn::unlock() {
  const std::lock_guard lock(mutex_);
  if (--depth_ == 0) leave();
}

void Turn::apart(const std::function<void()>& f) {
  std::unique_lock lock(mutex_);
  const int depth = leave();
  lock.unlock();
  try {
    f();
  } catch (...) {
    lock.lock();
    take(lock, depth);
    throw;
  }
  lock.lock();
  take(lock, depth);
}

void Turn::until(const std::function<bool()>& done) {
  while (!done()) {
    std::unique_lock lock(mutex_);
    const std::uint64_t seen = changes_;
    const int depth = leave();
    changed_.wait(lock, [&] { return changes_ != seen; });
    take(lock, depth);
  }
}

void Turn::changed() {
  {
    const std::lock_guard lock(mutex_);
    ++changes_;
  }
  changed_.notify_all();
}

}  // namespace hetu::emulator
