// The links of this process to the others of its job, as its environment says.
#pragma once
#include <memory>

#include "executor/comm/transport.h"

namespace hetu {

/// What the environment says of links. `number` is this worker's place in the grid where it is not
/// its rank; -1: the rank. The only place where a transport's options come from the environment.
comm::Options link_options(int number = -1);

/// The transport that HETU_TRANSPORT names where this process was started as one of several
/// workers, else a job of one. Once per process. Throws as comm::connect does.
std::unique_ptr<comm::Transport> open_links(int number = -1);

}  // namespace hetu
