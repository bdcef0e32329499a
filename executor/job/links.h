// The links of this process to the others of its job, as its environment says.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "config/env.h"
#include "net/transport/transport.h"

namespace hetu {

/// Called some times a second while other workers are awaited; may throw, which ends the wait.
using WhileWaiting = std::function<void()>;

/// Who takes part in the job.
struct StartedWorkers {
  std::vector<HostWorkers> hosts;  ///< in the order of the workers' numbers; one that has workers
                                   ///< apart from each other stands several times; empty: unknown
  int local_workers = 1;           ///< on this host
};

/// The workers of this process's job. In a job started by hand the first call waits for all of
/// them. Throws as comm::meet does.
StartedWorkers started_workers(const WhileWaiting& while_waiting = {});

/// What the environment says of links. `number` is this worker's place in the grid where it is not
/// its rank; -1: the rank. The only place where a transport's options come from the environment.
/// Waits as started_workers does where the links are sockets.
comm::Options link_options(int number = -1, const WhileWaiting& while_waiting = {});

/// The transport that HETU_TRANSPORT names where this process was started as one of several
/// workers, else a job of one. Once per process. Throws as comm::meet and comm::connect do.
std::unique_ptr<comm::Transport> open_links(int number = -1,
                                            const WhileWaiting& while_waiting = {});

}  // namespace hetu
