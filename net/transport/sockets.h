// The wire over stream sockets, for processes that are started by hand or by srun. Uses Unix
// sockets between processes of one host, and TCP between hosts. Needs no library.
#pragma once
#include <memory>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Connects the processes that met in `options.met`. Call it once per meeting. Between hosts, each
/// end proves that it belongs to the job; the messages after that are neither signed nor encrypted.
/// Throws Unsupported without a meeting, and InvalidArgument if the workers are not numbered 0 to
/// n-1, Timeout if the workers do not come together in time, and Comm if a link cannot be opened.
std::unique_ptr<Transport> connect_sockets(const Options& options);

}  // namespace hetu::comm
