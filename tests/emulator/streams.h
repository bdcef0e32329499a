// Streams of an emulated card: their work is done as late as it may be, so that what nobody waits
// for is not there.
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

/// Bytes that work reads or writes.
struct Touch {
  const void* begin;
  std::size_t bytes;
  bool writes;
  const char* what;
};

struct Work {
  Work() = default;
  /// Implicit, of anything that can be called. What it touches may be left out.
  template <class F>
  Work(F f, std::vector<Touch> touched = {}) : run(std::move(f)), touches(std::move(touched)) {}

  std::function<void()> run;
  std::vector<Touch> touches;
  /// Of work that knows it once it has run, a kernel's: whether it must not be done beside that.
  std::function<bool(const Touch&)> has_met;
};

/// Whether the two must not be done at the same time.
bool meet(const Touch& a, const Touch& b);

class Stream {
 public:
  /// Under `turn`, which whoever waits for another thread's work lets others have; null: there is
  /// one thread.
  explicit Stream(Turn* turn = nullptr) : turn_(turn) {}

  /// A capture takes it instead of the queue. `number` counts what all streams are given.
  void give(Work work, std::uint64_t number = 0);
  /// All that was given up to then is done, by this thread or by one that is at it.
  void finish(std::uint64_t given);
  void finish() { finish(given_); }
  std::uint64_t given() const { return given_; }
  /// The first that `meets` holds for of what it is at, or was given before work of another stream
  /// by that number and has not done; null: none.
  const Touch* unordered(const std::function<bool(const Touch&)>& meets,
                         std::uint64_t number) const;

  bool captures() const { return captures_; }
  /// Whether a thread may not wait: the one that captures, or any, where a capture asked for that.
  bool forbids_waiting() const {
    return captures_ && (of_all_ || by_ == std::this_thread::get_id());
  }
  void capture(bool forbids_all = false);
  /// What the capture has taken; `whole` where nothing broke it.
  std::vector<Work> captured(bool& whole);
  /// Something was asked for that a capture does not take.
  void break_capture() { broken_ = true; }

 private:
  void end_one();

  Turn* turn_;
  struct Given {
    Work work;
    std::uint64_t number;
  };
  std::deque<Given> queue_;
  bool works_ = false;  // somebody does `now_`, which was before the queue's first
  Given now_;
  std::vector<Work> capture_;
  std::uint64_t given_ = 0, done_ = 0;
  bool captures_ = false, broken_ = false, of_all_ = false;
  std::thread::id by_;
};

/// A place in a stream's work.
struct Event {
  std::shared_ptr<Stream> stream;
  std::uint64_t given = 0;

  void record(const std::shared_ptr<Stream>& in) { *this = {in, in->given()}; }
  void wait() const {
    if (stream != nullptr) stream->finish(given);
  }
};

}  // namespace hetu::emulator
