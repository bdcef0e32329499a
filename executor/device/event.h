// A point in time on a device's queue.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace hetu {

/// An event: all work enqueued before it is done. Copies refer to the same event.
class Event {
 public:
  /// Creates an event that has already happened.
  Event() = default;
  explicit Event(std::int64_t done_ns) : done_ns_(done_ns) {}

  /// A pending event, completed by the queue that owns it.
  class Coming {
   public:
    /// Completes the event: wakes waiting threads and runs the calls given to then(). With `error`,
    /// waits throw it.
    void complete(std::int64_t done_ns, std::exception_ptr error);

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

  /// Returns true if the event had already happened when it was created, as on a device that
  /// computes at once.
  bool at_once() const { return !coming_; }
  /// Returns true if the event has happened.
  bool done() const;
  /// Waits for the event and returns its time in nanoseconds of the steady clock. Throws the error
  /// of earlier work on the queue.
  std::int64_t wait() const;
  /// Waits for the event for at most `seconds`. Returns true if it has happened.
  bool wait_for(double seconds) const;
  /// Calls `call` once the event has happened: immediately, or on the thread that completes it,
  /// which the call must not block.
  void then(std::function<void()> call) const;

 private:
  std::shared_ptr<Coming> coming_;  // null: it happened at done_ns_
  std::int64_t done_ns_ = 0;
};

}  // namespace hetu
