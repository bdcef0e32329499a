// The transport between processes over any Wire: matching, long messages, liveness and orderly end.
// One progress thread makes all calls to the wire. Callers queue commands and sleep.
//
// Short messages (up to Options::inline_bytes) travel as one frame: tag, size, bytes. A long
// message takes three steps. The sender announces it by a frame. When its receive is posted, the
// receiver opens its buffer to the wire and sends a grant. Then the sender sends straight from the
// caller's memory. So every match is made here, by the whole 64-bit tag, and the wire's own tags
// and limits never matter.
#pragma once
#include <memory>

#include "net/transport/wire.h"

namespace hetu::comm {

/// Joins the job on `wire`. Throws Timeout if the workers do not come together in time, and Comm if
/// the wire fails.
std::unique_ptr<Transport> link_workers(std::unique_ptr<Wire> wire, const Options& options);

}  // namespace hetu::comm
