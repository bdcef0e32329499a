// Streams of an emulated card: their work is done as late as it may be, so that what nobody waits
// for is not there.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

namespace hetu::emulator {

using Work = std::function<void()>;

class Stream {
 public:
  /// A capture takes it instead of the queue.
  void give(Work work);
  /// All that was given up to then is done.
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
  std::deque<Work> queue_;
  std::vector<Work> capture_;
  std::uint64_t given_ = 0, done_ = 0;
  bool captures_ = false, broken_ = false, of_all_ = false;
  std::thread::id by_;
};

/// A place in a stream's work.
struct Event {
  Stream* stream = nullptr;
  std::uint64_t given = 0;

  void record(Stream& in) { *this = {&in, in.given()}; }
  void wait() const {
    if (stream != nullptr) stream->finish(given);
  }
};

}  // namespace hetu::emulator
