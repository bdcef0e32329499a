// A moment on a device's queue. Read by everything that must not go on before it.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hetu {

/// What was enqueued before it has been done. A value: copies are the same moment.
class Event {
 public:
  /// A moment in the past.
  Event() = default;
  explicit Event(std::int64_t done_ns) : done_ns_(done_ns) {}

  /// A moment that is still to come, and who makes it come.
  class Coming {
   public:
    void happen(std::int64_t done_ns, std::exception_ptr error);

   private:
    friend class Event;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
    std::int64_t done_ns_ = 0;
    std::exception_ptr error_;
    std::vector<std::function<void()>> then_;
  };
  explicit Event(std::shared_ptr<Coming> coming) : coming_(std::move(coming)) {}

  /// True if it was in the past when it was made: of a device that computes at once.
  bool at_once() const { return !coming_; }
  bool done() const;
  /// Sleeps until then; returns that moment in nanoseconds of the steady clock. Throws what a
  /// kernel before it has thrown.
  std::int64_t wait() const;
  /// Sleeps until then, or so long; whether it is done.
  bool wait_for(double seconds) const;
  /// Calls it once it is done: at once, or else on the thread that makes it so, which is not to be
  /// kept waiting.
  void then(std::function<void()> call) const;

 private:
  std::shared_ptr<Coming> coming_;  // null: it was at done_ns_
  std::int64_t done_ns_ = 0;
};

}  // namespace hetu
