// From a rendezvous to a connection with every other worker; inside of sockets.cpp.
#pragma once
#include <vector>

#include "net/transport/rendezvous.h"

namespace hetu::comm {

/// The workers of a job by their numbers.
struct Seats {
  std::vector<int> rank_of;  ///< per worker
  int worker = 0;            ///< this one
};

/// Connections by worker number; none to itself. `number` is this worker's, -1: its rank. Throws
/// InvalidArgument unless the numbers are 0 to n - 1, each once; Comm, Timeout.
std::vector<Socket> link_up(Rendezvous& met, int number, double timeout_s, Seats& seats);

}  // namespace hetu::comm
