// A client's line to one server: the messages in flight, and the messages kept until they are
// acknowledged. Read by client_state.h.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "ps/server/messages.h"

namespace hetu::ps::client {

/// Returns the current time of the clock of comm::now_ns().
std::int64_t now_ns();

/// A message to send.
struct Outgoing {
  int server = 0;
  Bytes header;
  server::Payload payload;
};

/// The sending side of a connection to one server. When heartbeats show that a message is lost, or
/// when the connection is lost, the line restarts: it sends Hello, and then again everything that
/// is not acknowledged.
class Line {
 public:
  /// Creates a line. `name` is the server's name for people; `hello` is the first message.
  Line(std::string name, server::Hello hello) : name_(std::move(name)), hello_(hello) {}

  const std::string& name() const { return name_; }
  /// Returns true if this server has ever sent Welcome.
  bool is_known() const { return hello_.known; }
  /// Returns true if no message waits for an acknowledgement.
  bool is_idle() const { return items_.empty(); }
  /// Returns the number of updates since the line exists.
  std::int64_t updates() const { return updates_; }

  /// Queues a message that is kept until it is settled.
  void put(server::FromClient message, server::Payload payload = {});
  /// As above, for an update, which is counted.
  void put_update(server::FromClient message, server::Payload payload);
  /// Queues a message that is sent once and not kept.
  void put_once(const server::FromClient& message) { once_.push_back(message); }
  /// Removes the messages that a server's message acknowledges. Returns their number.
  int settle(const server::FromServer& message);
  /// Removes other messages that need no answer any more.
  int settle(const std::function<bool(const server::FromClient&)>& is_settled);

  /// Appends the messages to send.
  void take(std::vector<Outgoing>& to);
  /// Processes the frame of a message. Returns false if the message is from an earlier attempt or
  /// concerns only the line itself.
  bool hear(const server::Framed<server::FromServer>& framed);
  /// Makes a heartbeat due, or a Hello if the server has not sent Welcome.
  void beat() { (welcome_ ? beat_due_ : hello_due_) = true; }
  /// Restarts the line: the next take() sends Hello and then all unsettled messages.
  void restart();

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
  std::size_t next_ = 0;              ///< first of items_ that is not sent
  std::int64_t bytes_in_flight_ = 0;  ///< payload of the sent items
  std::int64_t updates_ = 0;          ///< updates since the line exists
  std::vector<server::FromClient> once_;
};

}  // namespace hetu::ps::client
