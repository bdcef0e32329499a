// The pending requests of one worker between processes. Callers post and withdraw requests. The
// progress thread reports arrivals and takes the frames to send. Used by linked.cpp and
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

/// The workers of the job, and the doorbell that wakes them.
struct Peers {
  Roster roster;
  std::unique_ptr<Doorbell> bell;
  Options options;
  /// Per worker: true if our doorbell reaches it, or if it needs no doorbell.
  std::vector<char> local = {};

  int worker() const { return roster.worker; }
  int workers() const { return static_cast<int>(roster.hosts.size()); }
};

/// A frame that waits for the progress thread.
struct Command {
  int peer = 0;
  std::vector<std::byte> frame;
  /// Receive to open to the wire before the frame is sent; may be null.
  Request* receive = nullptr;
  std::uint64_t sequence = 0;  ///< number of the long message for `receive`
};

/// Matches requests with messages. All functions may be called from any thread.
class Matching {
 public:
  /// `peers` must outlive this object.
  explicit Matching(const Peers& peers);

  // Functions for callers.

  /// Starts a send or receive.
  void post(Request& request);
  /// Takes back a request. Returns false if the wire already holds the request's buffer.
  bool withdraw(const Request& request);
  /// Returns the position that a peer reports within one second, or "".
  std::string ask(int peer);
  /// Throws the reason if the links are dead.
  void check();

  // Functions for the progress thread.

  /// Swaps the queued commands with `commands`, which is cleared first.
  void take_commands(std::vector<Command>& commands);
  /// Delivers a short message, or keeps it until its receive is posted.
  void take_message(int peer, const Header& header, const std::byte* data);
  /// Returns the receive whose buffer must be opened for the announced long message. Returns null
  /// if no receive is posted yet, or if the sizes differ, which fails the receive.
  Request* take_announced(int peer, const Header& header);
  /// Returns the send that was granted; null if its sender has abandoned it.
  Request* take_granted(std::uint64_t sequence);
  /// Stores a peer's answer and wakes ask().
  void take_answer(std::string text);
  /// Completes requests that the wire has finished.
  void end_all(const std::vector<Request*>& requests);
  /// Records that nothing more comes from a worker. Requests that wait for it fail, now and later.
  void lose(int peer, const std::string& why);
  /// Returns the reason that was passed to lose(), or "" while the worker may still send.
  std::string lost(int peer);
  /// Fails every request, now and later.
  void break_all(const std::string& why, Code code);
  /// Returns true if a request is pending with a worker that no doorbell reaches.
  bool awaits_remote() const { return remote_pending_.load() > 0; }

 private:
  // Each post function returns true if the request is still pending.
  bool post_own(Request& request);
  bool post_send(Request& send);
  bool post_receive(Request& receive);
  void deliver(Request& receive, const std::byte* from, std::size_t bytes);
  // Passes a command to the progress thread, and wakes it.
  void queue(Command command);
  void forget(const Request& request);
  void end(Request& request, std::string error = {});

  const Peers& peers_;
  std::mutex mutex_;  // guards all members below, up to asking_
  Mailbox mailbox_;
  std::vector<Command> commands_;
  // Long sends without a grant, by sequence.
  std::unordered_map<std::uint64_t, Request*> announced_;
  std::uint64_t sequence_ = 0;  // number of the last long send
  std::string broken_;          // why the links are dead; empty while they work
  Code broken_code_ = Code::Comm;
  std::vector<std::string> left_;  // per worker: why nothing more comes from it
  std::string answer_;             // answer to ask()
  std::condition_variable answered_;
  std::mutex asking_;                   // serializes callers of ask()
  std::atomic<int> remote_pending_{0};  // pending requests with workers that no doorbell reaches
};

}  // namespace hetu::comm
