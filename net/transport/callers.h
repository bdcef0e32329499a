// Connections from callers that have not proved yet who they are. Read by rendezvous_host.cpp and
// link_up.cpp.
//
// A flood of connections must not push out a rank that has just called. Callers over TCP are
// therefore bounded in number, and each has a deadline. When all slots are taken, the address with
// the most callers loses its oldest one, but never before that caller had kReadTime_s to speak.
// Until then newcomers wait in the system's queue. Callers of this host come over Unix sockets,
// whose owner the system names; they take no slot.
#pragma once
#include <poll.h>

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "net/transport/endpoint.h"

namespace hetu::comm {

struct Caller {
  Socket socket;
  bool is_remote = false;  ///< over TCP
  std::string from;        ///< IP address of a remote caller, kept for when it has hung up
  std::int64_t since = 0;  ///< now_ns() of its arrival
  std::string nonce;       ///< what it was greeted with, if it was
  PacketReader reader;
};

/// Returns `wanted`, or fewer where the process may open few files: a quarter of them, at least 1.
std::size_t most_callers(std::size_t wanted);

class Callers {
 public:
  /// `longest`: bytes of a caller's packet. `most`: remote callers at a time, at least 1.
  /// `deadline_s`: seconds until a caller must have sent its packet.
  Callers(std::size_t longest, std::size_t most, double deadline_s)
      : longest_(longest), most_(most), deadline_s_(deadline_s) {}

  /// Accepts at most kMostAccepted of the connections that wait at `listener`, so that a flood does
  /// not hold up the rest of the loop. `greet` returns whether the caller may stay.
  void accept(const Socket& listener, const std::function<bool(Caller&)>& greet);

  /// Reads from all callers. `take` gets each one whose packet is whole, or is foreign; then, as
  /// when it has hung up or its deadline has passed, the caller is forgotten.
  void read(const std::function<void(Caller&, PacketReader::State)>& take);

  /// Adds what poll(2) should watch: the callers, and those `listeners` from which accept() can
  /// take more now.
  void add_sources(const std::vector<const Socket*>& listeners, std::vector<pollfd>& sources) const;

  void clear() { callers_.clear(); }

 private:
  bool make_slot(std::int64_t now);
  std::list<Caller>::iterator oldest_of_the_busiest();

  std::size_t longest_;
  std::size_t most_;
  double deadline_s_;
  std::list<Caller> callers_;       // in the order they came
  std::int64_t full_until_ = 0;     // now_ns() until which no remote caller can be accepted
  std::int64_t starved_until_ = 0;  // the same of any caller, for lack of file descriptors
};

}  // namespace hetu::comm
