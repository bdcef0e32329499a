// The progress thread of linked.h. It makes every call to the wire, and does all work that no
// caller triggers: heartbeats, matching of arrivals, the orderly end.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "net/transport/matching.h"

namespace hetu::comm {

/// The state and loop of the progress thread.
class ProgressThread {
 public:
  /// All arguments must outlive this object. `position` returns this worker's answer to a peer that
  /// asks for its position.
  ProgressThread(Wire& wire, const Peers& peers, Matching& matching,
                 std::function<std::string()> position);

  /// Runs the thread's loop from the start to the end of the job.
  void run();

  // Functions for other threads.

  /// Sets the text that the other workers receive when this worker leaves or gives up. Returns
  /// false if leave() was called before.
  bool set_note(const std::string& note);
  /// Makes run() notify the other workers that this worker cannot continue, and return.
  void give_up() { gives_up_.store(true); }
  /// Makes run() return once every worker has left.
  void leave();
  /// Makes run() end the process with this status.
  void end_process(int status);
  /// Returns true if another worker has given up, and so has ended the links.
  bool others_gave_up() const { return others_gave_up_.load(); }
  /// Fails all pending requests. Call it on the thread itself, or after the thread has ended.
  void break_links(const std::string& why, Code code);

 private:
  // One iteration of the loop. The three functions after it return true if they found work.
  void turn();
  bool run_commands();
  bool take_frames();
  bool take_long();
  void handle(int peer, const Header& header, const std::byte* data);
  void open(Request& receive, std::uint64_t sequence);
  void send(int peer, const Header& header, const void* data = nullptr, std::size_t bytes = 0);
  void send_text(int peer, FrameKind kind, const std::string& text);
  void send_all(FrameKind kind, const std::string& text);
  // Rings the doorbells that are marked in to_ring_.
  void ring_marked();
  void watch_neighbours(std::int64_t now);
  std::string silence_of(int worker) const;
  void take_leave(std::int64_t now);
  void say_giving_up();
  void end_now(int status);
  std::int64_t tick(std::int64_t now) const;
  std::string note();

  Wire& wire_;
  const Peers& peers_;
  Matching& matching_;
  const std::function<std::string()> position_;

  std::mutex mutex_;
  std::string note_;  // text that this worker leaves with; guarded by mutex_
  std::atomic<bool> leave_{false};
  std::atomic<bool> gives_up_{false};
  std::atomic<int> end_status_{0};
  std::atomic<bool> others_gave_up_{false};

  // Used by the thread only.
  std::vector<Command> current_;
  std::vector<Request*> open_;  // long messages that the wire holds
  std::vector<Request*> ended_;
  std::vector<int> slow_;              // peers with frames that are not sent yet
  std::vector<char> to_ring_;          // per worker: 1 if its doorbell must be rung
  std::vector<std::int64_t> left_at_;  // per worker: now_ns() of its Bye, or 0
  std::int64_t last_sent_ = 0, last_heard_ = 0, last_turn_ = 0, last_news_ = 0, leave_since_ = 0;
  int byes_ = 0;
  bool said_bye_ = false;
  bool closing_ = false;
};

}  // namespace hetu::comm
