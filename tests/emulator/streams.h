// Streams of an emulated GPU. Their work is done as late as possible, so that results that nobody
// waits for are missing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulator/turn.h"

namespace hetu::emulator {

/// A range of bytes that work reads or writes.
struct Touch {
  const void* begin;
  std::size_t bytes;
  bool writes;
  const char* what;
};

struct Work {
  Work() = default;
  /// Implicit conversion from anything callable. `touched` may be omitted.
  template <class F>
  Work(F f, std::vector<Touch> touched = {}) : run(std::move(f)), touches(std::move(touched)) {}

  std::function<void()> run;
  std::vector<Touch> touches;
  /// For work that knows its accesses only after it has run (a kernel): returns true if it
  /// conflicts with another range.
  std::function<bool(const Touch&)> has_met;
};

/// Returns true if the two must not be done at the same time.
bool meet(const Touch& a, const Touch& b);

class Stream {
 public:
  /// `turn` is the lock under which the stream is used. A thread that waits for another thread's
  /// work releases it. Null: there is only one thread.
  explicit Stream(Turn* turn = nullptr) : turn_(turn) {}

  /// Adds work to the queue, or to the capture if there is one. `number` counts the work of all
  /// streams.
  void give(Work work, std::uint64_t number = 0);
  /// Waits until all work up to `given` is done, by this thread or by one that is already doing it.
  void finish(std::uint64_t given);
  void finish() { finish(given_); }
  std::uint64_t given() const { return given_; }
  /// Returns the first range for which `meets` is true, among the current work and the queued work
  /// that was given before number `number`. Returns null if there is none.
  const Touch* unordered(const std::function<bool(const Touch&)>& meets,
                         std::uint64_t number) const;

  bool captures() const { return captures_; }
  /// Returns true if the calling thread may not wait: the capturing thread, or any thread if the
  /// capture asked for that.
  bool forbids_waiting() const {
    return captures_ && (of_all_ || by_ == std::this_thread::get_id());
  }
  void capture(bool forbids_all = false);
  /// Ends a capture and returns its work. `whole` is true if nothing broke it.
  std::vector<Work> captured(bool& whole);
  /// Marks the capture as broken, because an operation was requested that a capture can't contain.
  void break_capture() { broken_ = true; }

 private:
  void end_one();

  Turn* turn_;
  struct Given {
    Work work;
    std::uint64_t number;
  };
  std::deque<Given> queue_;
  bool works_ = false;  // a thread runs now_, which was first in the queue
  Given now_;
  std::vector<Work> capture_;
  std::uint64_t given_ = 0, done_ = 0;
  bool captures_ = false, broken_ = false, of_all_ = false;
  std::thread::id by_;
};

/// A position in a stream's work.
struct Event {
  std::shared_ptr<Stream> stream;
  std::uint64_t given = 0;

  void record(const std::shared_ptr<Stream>& in) { *this = {in, in->given()}; }
  void wait() const {
    if (stream != nullptr) stream->finish(given);
  }
};

}  // namespace hetu::emulator
