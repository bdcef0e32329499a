// The progress thread of linked.h: makes every call to the wire; whatever happens without a caller
// happens here.
#pragma once
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "net/transport/matching.h"

namespace hetu::comm {

class ProgressThread {
 public:
  /// All must outlive it. `position` is this worker's answer to whoever asks where it stands.
  ProgressThread(Wire& wire, const Peers& peers, Matching& matching,
                 std::function<std::string()> position);

  /// The thread's work, from the start to the end of the job.
  void run();

  // From other threads.

  /// What the others hear when this worker leaves or gives up; false if its end was begun before.
  bool set_note(const std::string& note);
  /// run() says that it cannot go on, and returns.
  void give_up() { gives_up_.store(true); }
  /// run() returns once every worker has left.
  void leave();
  /// The process ends from run(), with this status.
  void end_process(int status);
  /// Whether another worker has given up, and ended the links by it.
  bool others_gave_up() const { return others_gave_up_.load(); }
  /// All that is under way fails. On the thread, or after its end.
  void break_links(const std::string& why, Code code);

 private:
  void turn();
  bool run_commands();
  bool take_frames();
  bool take_long();
  void handle(int peer, const Header& header, const std::byte* data);
  void open(Request& receive, std::uint64_t sequence);
  void send(int peer, const Header& header, const void* data = nullptr, std::size_t bytes = 0);
  void send_text(int peer, FrameKind kind, const std::string& text);
  void tell_all(FrameKind kind, const std::string& text);
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
  std::string note_;  // what this worker leaves with
  std::atomic<bool> leave_{false};
  std::atomic<bool> gives_up_{false};
  std::atomic<int> end_status_{0};
  std::atomic<bool> others_gave_up_{false};

  // The thread's own.
  std::vector<Command> current_;
  std::vector<Request*> open_;  // long messages that the wire holds
  std::vector<Request*> ended_;
  std::vector<int> slow_;
  std::vector<char> to_ring_;
  std::vector<std::int64_t> left_at_;  // per worker: when it said so, or 0
  std::int64_t last_sent_ = 0, last_heard_ = 0, last_turn_ = 0, last_news_ = 0, leave_since_ = 0;
  int byes_ = 0;
  bool said_bye_ = false;
  bool closing_ = false;
};

}  // namespace hetu::comm
