// Opens connections to all other workers after a rendezvous. Internal to sockets.cpp.
#pragma once
#include <vector>

#include "net/transport/rendezvous.h"

namespace hetu::comm {

/// The worker numbers of a job, with their ranks at the rendezvous.
struct WorkerRanks {
  std::vector<int> rank_of;  ///< by worker number
  int worker = 0;            ///< number of this worker
};

/// Returns the connections by worker number; the entry of this worker is empty. `number` is this
/// worker's number, or -1 to use its rank. Throws InvalidArgument unless the numbers are 0 to n-1,
/// each once. Throws Comm or Timeout if a link cannot be opened.
std::vector<Socket> link_up(Rendezvous& met, int number, double timeout_s, WorkerRanks& ranks);

}  // namespace hetu::comm
