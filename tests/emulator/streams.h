// Streams of an emulated card: their work is done as late as it may be, so that what nobody waits
// for is not there.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/emulator/turn.h"

namespace hetu::emulator {

using Work = std::function<void()>;

class Stream {
 public:
  /// Under `turn`, which whoever waits for another thread's work lets others have; null: there is
  /// one thread.
  explicit Stream(Turn* turn = nullptr) : turn_(turn) {}

  /// A capture takes it instead of the queue.
  void give(Work work);
  /// All that was given up to then is done, by this thread or by one that is at it.
  void finish(std::uint64_t given);
  void finish() { finish(given_); }
  std::uint64_t given() const { return given_; }

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
  std::deque<Work> queue_;
  bool works_ = false;  // somebody does the work before the queue's first
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
