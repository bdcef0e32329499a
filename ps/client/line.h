// A client's line to one server: what is on its way there, and what is kept until it is
// acknowledged. Read by client_state.h.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "ps/server/messages.h"

namespace hetu::ps::client {

/// Now, as comm::now_ns().
std::int64_t now_ns();

/// A message to send.
struct Outgoing {
  int server = 0;
  Bytes header;
  server::Payload payload;
};

/// A line that has lost a message, as its signs of life tell, or its connection, begins anew:
/// hello, and then everything again that is not acknowledged.
class Line {
 public:
  /// `name`: of the server, for people. `hello`: what it hears first.
  Line(std::string name, server::Hello hello) : name_(std::move(name)), hello_(hello) {}

  const std::string& name() const { return name_; }
  /// Has been welcomed by this server, ever.
  bool is_known() const { return hello_.known; }
  /// Nothing waits for an acknowledgement.
  bool is_idle() const { return items_.empty(); }
  std::int64_t updates() const { return updates_; }

  /// A message that stays until it is settled.
  void put(server::FromClient message, server::Payload payload = {});
  /// The same, of an update: counted.
  void put_update(server::FromClient message, server::Payload payload);
  /// A message that nobody keeps.
  void put_once(const server::FromClient& message) { once_.push_back(message); }
  /// Removes what a message of the server acknowledges; returns how many messages that were.
  int settle(const server::FromServer& message);
  /// Removes others that nobody waits for any more.
  int settle(const std::function<bool(const server::FromClient&)>& is_settled);

  /// Appends what is to be sent now.
  void take(std::vector<Outgoing>& to);
  /// A message has come. False: it is of an earlier beginning, or the line's own.
  bool hear(const server::Framed<server::FromServer>& framed);
  /// A sign of life is due.
  void beat() { (welcome_ ? beat_due_ : hello_due_) = true; }
  void begin_anew();

 private:
  struct Item {
    server::FromClient message;
    server::Payload payload;
  };

  std::string name_;
  server::Hello hello_;
  std::uint32_t attempt_ = 1;
  bool hello_due_ = true;
  bool welcome_ = false;
  bool beat_due_ = false;
  std::int64_t sent_ = 0;
  server::Received received_;
  std::deque<Item> items_;
  std::size_t next_ = 0;           ///< first of items that is not sent
  std::int64_t bytes_on_way_ = 0;  ///< payload of those that are
  std::int64_t updates_ = 0;       ///< of parts, ever
  std::vector<server::FromClient> once_;
};

}  // namespace hetu::ps::client
