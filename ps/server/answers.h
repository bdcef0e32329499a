// What a store answers while it takes a message. Read by the store's own sources alone.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ps/server/messages.h"
#include "ps/server/seat.h"

namespace hetu::ps::server {

/// A message to send.
struct Outgoing {
  Peer to = 0;
  Bytes header;
  Payload payload;
  /// To be kept until the message has left: until then its receiver has not read it.
  std::shared_ptr<const void> receipt = nullptr;
};

/// Messages to send, and whether the one that is being taken changes the store.
class Answers {
 public:
  /// `server`: its number, for people.
  /// `most_unread`: as StoreOptions'.
  Answers(int server, std::int64_t most_unread) : server_(server), most_unread_(most_unread) {}

  /// To whoever sits there; numbered, but for what begins and checks a line.
  void send(Seat& seat, const FromServer& message, const Payload& payload = {});
  /// To a connection without a seat; dropped where more than a little waits for its reader.
  void send_to(Peer peer, Bytes header, Payload payload = {});
  std::vector<Outgoing> take();

  /// Bytes that were sent to it and have not left.
  std::int64_t unread(const Seat& seat) const;
  /// Something is kept back until it has read more.
  void hold_back(Seat& seat) { held_back_.insert(&seat); }
  std::set<Seat*> take_held_back() { return std::exchange(held_back_, {}); }
  /// A seat that is no more.
  void forget(Seat* seat) { held_back_.erase(seat); }
  bool holds_back() const { return !held_back_.empty(); }
  /// Who reads too little: nothing more is sent there.
  std::vector<Seat*> take_overfull() { return std::exchange(overfull_, {}); }

  /// The client can do nothing more here; its message has changed nothing.
  void refuse(Seat& seat, Code code, const std::string& text);
  /// The message is none that a worker of this job sends: counted, and nothing has changed.
  void drop(const std::string& why);
  void count_dropped() { ++dropped_; }

  int server() const { return server_; }
  std::int64_t dropped() const { return dropped_; }
  std::int64_t sent_bytes() const { return sent_bytes_; }

  /// Set by whoever takes the message; the log keeps those that change something.
  bool changes = false;

 private:
  using Unread = std::atomic<std::int64_t>;
  void put(Peer peer, Bytes header, Payload payload, std::int64_t bytes);
  bool may_send(Seat& seat, std::int64_t bytes);

  const int server_;
  const std::int64_t most_unread_;
  std::map<Peer, std::shared_ptr<Unread>> unread_;
  std::size_t swept_ = 0;  ///< connections that were left when unread_ was swept
  std::set<Seat*> held_back_;
  std::vector<Seat*> overfull_;
  std::vector<Outgoing> outgoing_;
  std::int64_t dropped_ = 0;
  std::int64_t sent_bytes_ = 0;
};

}  // namespace hetu::ps::server
