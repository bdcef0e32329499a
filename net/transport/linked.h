// The transport between processes: matching, long messages, liveness and orderly end, over any
// Wire. One progress thread makes all calls to the wire; callers queue commands and sleep.
//
// Short messages (up to Options::inline_bytes) travel as one frame: tag, size, bytes. A long one is
// announced by a frame; when its receive is posted, the receiver opens its buffer to the wire and
// grants; then the sender ships straight from the caller's memory. So every match is made here, by
// the whole 64-bit tag, and the wire's own tags and limits never matter.
#pragma once
#include <memory>

#include "net/transport/wire.h"

namespace hetu::comm {

/// Joins the job on `wire`. Throws Timeout if the workers do not come together in time, Comm if the
/// wire fails.
std::unique_ptr<Transport> link_workers(std::unique_ptr<Wire> wire, const Options& options);

}  // namespace hetu::comm
