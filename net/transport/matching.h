// The requests of one worker that are under way between processes: callers post and withdraw them,
// the progress thread tells what has come and takes what is to be sent. Used by linked.cpp and
// progress_thread.h.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "net/transport/doorbell.h"
#include "net/transport/frame.h"
#include "net/transport/mailbox.h"
#include "net/transport/wire.h"

namespace hetu::comm {

/// Who is in the job, and how this worker wakes them.
struct Peers {
  Roster roster;
  std::unique_ptr<Doorbell> bell;
  Options options;
  std::vector<char> local = {};  ///< per worker: hears our doorbell

  int worker() const { return roster.worker; }
  int workers() const { return static_cast<int>(roster.hosts.size()); }
};

/// A frame that waits for the progress thread.
struct Command {
  int peer = 0;
  std::vector<std::byte> frame;
  Request* receive = nullptr;  ///< opened to the wire before the frame goes out
  std::uint64_t sequence = 0;
};

/// All of it may be called from any thread.
class Matching {
 public:
  /// `peers` must outlive it.
  explicit Matching(const Peers& peers);

  // For callers.

  void post(Request& request);
  /// False if the wire holds the request's buffer.
  bool withdraw(const Request& request);
  /// What a peer says of where it stands, within a second, or "".
  std::string ask(int peer);
  /// Throws why the links are dead.
  void check();

  // For the progress thread.

  /// Swaps them for an empty list.
  void take_commands(std::vector<Command>& commands);
  void take_message(int peer, const Header& header, const std::byte* data);
  /// The receive whose buffer is to be opened for the long message; null if there is none yet, or
  /// it has failed.
  Request* take_announced(int peer, const Header& header);
  /// The send that may go; null if its sender has given up.
  Request* take_granted(std::uint64_t sequence);
  void take_answer(std::string text);
  /// The wire is through with them.
  void end_all(const std::vector<Request*>& requests);
  /// Nothing more comes from that worker: what is awaited of it fails, now and from here on.
  void lose(int peer, const std::string& why);
  /// Why nothing more comes from it; empty while it may.
  std::string lost(int peer);
  /// Everything fails, now and from here on.
  void break_all(const std::string& why, Code code);
  /// Whether anything is under way with workers that no doorbell reaches.
  bool awaits_remote() const { return remote_pending_.load() > 0; }

 private:
  // Each returns whether the request is still pending.
  bool post_own(Request& request);
  bool post_send(Request& send);
  bool post_receive(Request& receive);
  void deliver(Request& receive, const std::byte* from, std::size_t bytes);
  void queue(Command command);
  void forget(const Request& request);
  void end(Request& request, std::string error = {});

  const Peers& peers_;
  std::mutex mutex_;  // guards what follows
  Mailbox mailbox_;
  std::vector<Command> commands_;
  std::unordered_map<std::uint64_t, Request*> announced_;  // long sends without a grant
  std::uint64_t sequence_ = 0;
  std::string broken_;  // why the links are dead; empty while they live
  Code broken_code_ = Code::Comm;
  std::vector<std::string> left_;  // per worker: why no more comes from it
  std::string answer_;             // to ask
  std::condition_variable answered_;
  std::mutex asking_;
  std::atomic<int> remote_pending_{0};  // requests with workers that no doorbell reaches
};

}  // namespace hetu::comm
