// Transport between workers that are threads of one process: tests, and `hetu rehearse` without
// MPI.
#pragma once
#include <memory>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Returns one transport per worker. Each transport may move to its own thread. Messages of up to
/// options.inline_bytes are copied at once, and longer ones when their receive is posted. Throws
/// InvalidArgument unless workers >= 1.
std::vector<std::unique_ptr<Transport>> make_inproc(int workers, const Options& options = {});

}  // namespace hetu::comm
