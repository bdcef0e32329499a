// Matches messages with receives, per peer and tag in order; used by the transports, under a lock
// of theirs. The lists are short (receives posted ahead, messages not yet asked for), so they are
// scanned.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// A message that came before its receive: its bytes, or where they are to be had.
struct Arrival {
  Tag tag = 0;
  std::size_t bytes = 0;
  std::vector<std::byte> copy;  ///< the bytes, if the message was short
  Request* sender = nullptr;    ///< inproc: the waiting send of a long message
  std::uint64_t sequence = 0;   ///< mpi: number of a long message between the two workers
  bool announced = false;       ///< true: a long message, the bytes are still with the sender
};

/// Receives and messages of one worker that still wait for each other.
class Mailbox {
 public:
  explicit Mailbox(int workers) : posted_(workers), arrived_(workers) {}

  /// The oldest receive for (peer, tag), removed from the list; null if none is posted.
  Request* take_receive(int peer, Tag tag);
  /// The oldest message with (peer, tag), removed from the list.
  std::optional<Arrival> take_arrival(int peer, Tag tag);
  void add_receive(Request& receive) { posted_[receive.peer()].push_back(&receive); }
  void add_arrival(int peer, Arrival arrival) { arrived_[peer].push_back(std::move(arrival)); }

  /// Withdraws a receive; false if it is no longer in the list.
  bool remove_receive(const Request& receive);
  /// Withdraws a long message whose sender gives up; false if it is no longer in the list.
  bool remove_sender(int from, const Request& send);
  /// Withdraws and returns the receives from one peer; its messages stay.
  std::vector<Request*> clear(int peer);
  /// Empties the mailbox; returns every receive and waiting sender in it.
  std::vector<Request*> clear();

 private:
  std::vector<std::vector<Request*>> posted_;
  std::vector<std::deque<Arrival>> arrived_;
};

}  // namespace hetu::comm
