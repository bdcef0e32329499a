// What a store answers while it takes a message. Read by the store's own sources alone.
#pragma once
#include <cstdint>
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
};

/// Messages to send, and whether the one that is being taken changes the store.
class Answers {
 public:
  /// `server`: its number, for people.
  explicit Answers(int server) : server_(server) {}

  /// To whoever sits there; numbered, but for what begins and checks a line.
  void send(Seat& seat, const FromServer& message, const Payload& payload = {});
  /// To a connection without a seat.
  void send_to(Peer peer, Bytes header, Payload payload = {});
  std::vector<Outgoing> take();

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
  const int server_;
  std::vector<Outgoing> outgoing_;
  std::int64_t dropped_ = 0;
  std::int64_t sent_bytes_ = 0;
};

}  // namespace hetu::ps::server
