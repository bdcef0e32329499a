// Answers that a store collects while it processes a message. Read by the store's own sources only.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ps/server/client_slot.h"
#include "ps/server/messages.h"

namespace hetu::ps::server {

/// A message to send.
struct Outgoing {
  Peer to = 0;
  Bytes header;
  Payload payload;
  /// Keeps the message's bytes in the unread count until the transport drops the message. Until
  /// then the receiver has not read it.
  std::shared_ptr<const void> receipt = nullptr;
};

/// Collects the messages to send. Records whether the message being processed changes the store.
class Answers {
 public:
  /// Creates an empty collection. `server` is this server's number, for error texts. `most_unread`
  /// is StoreOptions::most_unread.
  Answers(int server, std::int64_t most_unread) : server_(server), most_unread_(most_unread) {}

  /// Sends a message to the client. The message gets the next serial number, except Welcome,
  /// BeatBack and Refusal. Sends nothing to a client that has not reconnected.
  void send(ClientSlot& client, const FromServer& message, const Payload& payload = {});
  /// Sends a message to a connection that has not said Hello. Drops it if more than 1 MiB of
  /// answers already wait for this reader.
  void send_to(Peer peer, Bytes header, Payload payload = {});
  /// Returns the messages since the last call, in order, and counts them as sent.
  std::vector<Outgoing> take();

  /// Returns the bytes sent to the client that have not left this process.
  std::int64_t unread(const ClientSlot& client) const;
  /// Marks a client that gets more rows only after it has read more.
  void hold_back(ClientSlot& client) { held_back_.insert(&client); }
  std::set<ClientSlot*> take_held_back() { return std::exchange(held_back_, {}); }
  /// Forgets a client that is about to be destroyed.
  void forget(ClientSlot* client) { held_back_.erase(client); }
  bool holds_back() const { return !held_back_.empty(); }
  /// Returns, once, the clients that read too little. They get no further messages.
  std::vector<ClientSlot*> take_overfull() { return std::exchange(overfull_, {}); }

  /// Refuses the message and ends the client's work with this server. The message has not changed
  /// the store.
  void refuse(ClientSlot& client, Code code, const std::string& text);
  /// Drops and counts a message that no worker of this job sends. The store has not changed.
  void drop(const std::string& why);
  void count_dropped() { ++dropped_; }

  int server() const { return server_; }
  std::int64_t dropped() const { return dropped_; }
  std::int64_t sent_bytes() const { return sent_bytes_; }

  /// True if the current message changes the store. The code that processes the message sets it;
  /// the log records messages for which it is true.
  bool changes = false;

 private:
  using Unread = std::atomic<std::int64_t>;
  void put(Peer peer, Bytes header, Payload payload, std::int64_t bytes);
  // Returns true if the client may get `bytes` more. Marks it as overfull if not.
  bool may_send(ClientSlot& client, std::int64_t bytes);

  const int server_;
  const std::int64_t most_unread_;
  std::map<Peer, std::shared_ptr<Unread>> unread_;
  std::size_t swept_ = 0;  ///< connections left after the last sweep of unread_
  std::set<ClientSlot*> held_back_;
  std::vector<ClientSlot*> overfull_;
  std::vector<Outgoing> outgoing_;
  std::int64_t dropped_ = 0;
  std::int64_t sent_bytes_ = 0;
};

}  // namespace hetu::ps::server
