// The wire over stream sockets, for processes that were started by hand or by srun: Unix sockets
// between those of one host, TCP between hosts. Needs no library.
#pragma once
#include <memory>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Links between the processes that options.met has brought together; once per meeting. Between
/// hosts each end proves that it belongs to the job; what follows is neither signed nor encrypted.
/// Throws InvalidArgument without a meeting, Timeout if the workers do not come together in time,
/// Comm if a link cannot be opened.
std::unique_ptr<Transport> connect_sockets(const Options& options);

}  // namespace hetu::comm
