// Matches messages with receives by peer and tag, in order. Transports use it under a lock of their
// own. The lists are short (receives posted ahead, and messages without a receive), so a linear
// scan suffices.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// A message that arrived before its receive. Holds either its bytes or a reference to their
/// sender.
struct Arrival {
  Tag tag = 0;
  std::size_t bytes = 0;
  std::vector<std::byte> copy;  ///< the bytes of a short message
  Request* sender = nullptr;    ///< within a process: the waiting send of a long message
  std::uint64_t sequence = 0;   ///< between processes: the sender's number of a long message
  bool announced = false;       ///< true for a long message whose bytes are still with the sender
};

/// Receives and messages of one worker that are not matched yet.
class Mailbox {
 public:
  explicit Mailbox(int workers) : posted_(workers), arrived_(workers) {}

  /// Removes and returns the oldest receive for (peer, tag), or returns null if none is posted.
  Request* take_receive(int peer, Tag tag);
  /// Removes and returns the oldest message with (peer, tag), or returns nullopt.
  std::optional<Arrival> take_arrival(int peer, Tag tag);
  void add_receive(Request& receive) { posted_[receive.peer()].push_back(&receive); }
  void add_arrival(int peer, Arrival arrival) { arrived_[peer].push_back(std::move(arrival)); }

  /// Withdraws a receive. Returns false if it is not in the list.
  bool remove_receive(const Request& receive);
  /// Withdraws a long message whose sender abandons it. Returns false if it is not in the list.
  bool remove_sender(int from, const Request& send);
  /// Withdraws and returns the receives from one peer. Messages from that peer stay.
  std::vector<Request*> clear(int peer);
  /// Empties the mailbox. Returns every receive and waiting sender that was in it.
  std::vector<Request*> clear();

 private:
  std::vector<std::vector<Request*>> posted_;
  std::vector<std::deque<Arrival>> arrived_;
};

}  // namespace hetu::comm
