// The inside of linked.h: frames, and the transport's two sides.
#pragma once
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "executor/comm/doorbell.h"
#include "executor/comm/mailbox.h"
#include "executor/comm/wire.h"
#include "graph/base/error.h"

namespace hetu::comm {

/// What a frame says.
enum class FrameKind : std::uint32_t {
  Message,   // a short message
  Announce,  // a long message waits at its sender
  Grant,     // its receiver's buffer is open
  Alive,     // heartbeat, to the next worker
  Dead,      // worker `sequence` is silent
  Ask,       // where do you stand?
  Answer,
  Bye,     // to all: this worker is done, or has left in the middle as the text says
  GaveUp,  // to all: this worker cannot go on, for the reason of the text
  Closed   // from worker 0: all are done
};

/// The first bytes of every frame.
struct Header {
  FrameKind kind = FrameKind::Message;
  std::uint32_t unused = 0;
  Tag tag = 0;
  std::uint64_t bytes = 0;     // of the message
  std::uint64_t sequence = 0;  // of a long message, counted by its sender
};

/// A frame: header, then `bytes` bytes of data.
std::vector<std::byte> make_frame(const Header& header, const void* data = nullptr,
                                  std::size_t bytes = 0);

constexpr std::int64_t kSecond = 1'000'000'000;  // ns

/// What the progress thread knows once it has joined the job.
struct Joined {
  Roster roster;
  std::unique_ptr<Doorbell> bell;
};

/// Callers' side in linked.cpp, the progress thread's in progress.cpp.
class Linked final : public Transport {
 public:
  Linked(std::shared_ptr<Wire> wire, Joined joined, const Options& options);
  ~Linked() override;

  const std::string& host_of(int worker) const override { return roster_.hosts.at(worker); }
  bool same_clock(int worker) const override {
    return roster_.domains.at(worker) == roster_.domains[this->worker()];
  }
  void abort(int status, const std::string& reason) override;
  void leave(const std::string& note) override;
  void give_up(const std::string& reason) override;

  void run();  // the progress thread, from the start barrier to the end
  std::thread thread;

 protected:
  void post(Request& request) override;
  void cancel(Request& request) override;
  std::string ask_position(int peer) override;

 private:
  struct Command {
    int peer = 0;
    std::vector<std::byte> frame;
    Request* receive = nullptr;  // opened to the wire before the frame goes out
    std::uint64_t sequence = 0;
  };

  // Callers' side, under mutex_.
  bool post_own(Request& request);
  bool post_send(Request& send);
  bool post_receive(Request& receive);
  bool deliver(Request& receive, const std::byte* from, std::size_t bytes);
  void queue(Command command);
  // Both sides, under mutex_: announces the end of a request that was pending.
  void end(Request& request, std::string error = {});
  // Ends the progress thread; false if it has ended before.
  bool end_thread();

  // The progress thread's side.
  void turn();
  bool run_commands();
  bool take_frames();
  bool take_long();
  void handle(int peer, const Header& header, const std::byte* data);
  void handle_announce(int peer, const Header& header);
  void handle_grant(const Header& header);
  void handle_bye(int peer, const std::string& note);
  void send(int peer, const Header& header, const void* data = nullptr, std::size_t bytes = 0);
  void ring_marked();
  void watch_neighbours(std::int64_t now);
  void take_leave(std::int64_t now);
  void tell_all(FrameKind kind, const std::string& text);
  void say_giving_up();
  std::int64_t tick(std::int64_t now) const;
  void break_links(const std::string& why, Code code);

  std::shared_ptr<Wire> wire_;
  Roster roster_;
  std::unique_ptr<Doorbell> bell_;
  std::vector<char> local_;  // per worker: hears our doorbell

  std::mutex mutex_;
  Mailbox mailbox_;
  std::vector<Command> commands_;
  std::unordered_map<std::uint64_t, Request*> announced_;  // long sends without a grant
  std::uint64_t sequence_ = 0;
  std::string broken_;  // why the links are dead; empty while they live
  Code broken_code_ = Code::Comm;
  std::vector<std::string> left_;  // per worker: why no more comes from it; empty while it may
  std::string note_;               // what this worker leaves with
  std::string answer_;             // to ask_position
  std::condition_variable answered_;
  std::mutex asking_;
  std::atomic<int> remote_pending_{0};  // requests with workers that no doorbell reaches
  std::atomic<bool> leave_{false};
  std::atomic<bool> gives_up_{false};
  std::atomic<int> end_status_{0};

  std::mutex ending_;
  const int exceptions_ = std::uncaught_exceptions();  // that passed where this was made

  // The progress thread's own.
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
