// Bounds the connections of callers that have not yet proved who they are. Read by
// rendezvous_host.cpp and link_up.cpp.
//
// A flood of connections must not push out a rank that has just connected. Callers over TCP are
// therefore limited in number, and each has a deadline. When all slots are taken, the IP address
// with the most callers loses its oldest one. That caller first gets kReadTime_s to send its
// packet. Until then, new connections wait in the system's queue. Callers on the same host connect
// through Unix sockets. The system names their owner, so they take no slot.
#pragma once
#include <poll.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "net/transport/endpoint.h"

namespace hetu::comm {

/// A connection whose other end has not yet proved who it is.
struct Caller {
  Socket socket;
  bool is_remote = false;  ///< true for a TCP connection
  std::string from;        ///< IP address of a remote caller; stays known after it hangs up
  std::int64_t since = 0;  ///< now_ns() when it connected
  std::string nonce;       ///< nonce that was sent to it in the greeting; "" if there was none
  PacketReader reader;
};

/// Returns `wanted`, or a quarter of the process's limit of open files if that is less; at least 1.
std::size_t most_callers(std::size_t wanted);

/// The set of current callers. Used by one thread only.
class Callers {
 public:
  /// `longest` is the largest packet of a caller in bytes. `most` is the number of remote callers
  /// at a time, at least 1. `deadline_s` is the time in seconds within which a caller must send its
  /// packet.
  Callers(std::size_t longest, std::size_t most, double deadline_s)
      : longest_(longest), most_(most), deadline_s_(deadline_s) {}

  /// Accepts at most kMostAccepted of the connections that wait at `listener`, so that a flood does
  /// not hold up the rest of the loop. `greet` returns true if the caller may stay.
  void accept(const Socket& listener, const std::function<bool(Caller&)>& greet);

  /// Reads from all callers. Calls `take` for each caller whose packet is complete or malformed,
  /// and then forgets the caller. Callers that have hung up or missed their deadline are forgotten
  /// too.
  void read(const std::function<void(Caller&, PacketReader::State)>& take);

  /// Appends the descriptors that poll(2) should watch: all callers, and those `listeners` from
  /// which accept() can accept a connection at present.
  void add_sources(const std::vector<const Socket*>& listeners, std::vector<pollfd>& sources) const;

  /// Forgets all callers and closes their connections.
  void clear() { callers_.clear(); }

 private:
  bool make_slot(std::int64_t now);
  std::list<Caller>::iterator oldest_of_the_busiest();

  std::size_t longest_;
  std::size_t most_;
  double deadline_s_;
  std::list<Caller> callers_;    // in order of arrival
  std::int64_t full_until_ = 0;  // now_ns() until which no remote caller can be accepted
  // now_ns() until which no caller can be accepted, for lack of file descriptors.
  std::int64_t starved_until_ = 0;
};

}  // namespace hetu::comm
