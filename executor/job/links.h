// The links of this process to the other workers of its job, as configured by the environment.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "config/env.h"
#include "net/transport/transport.h"

namespace hetu {

/// Called a few times per second while the process waits for other workers. An exception ends the
/// wait.
using WhileWaiting = std::function<void()>;

/// The workers that take part in the job.
struct StartedWorkers {
  /// Hosts in the order of worker numbers. A host whose workers are not consecutive occurs several
  /// times. Empty if unknown.
  std::vector<HostWorkers> hosts;
  int local_workers = 1;  ///< workers on this host
};

/// Returns the workers of this process's job. In a job started by hand, the first call waits for
/// all of them. Throws as comm::meet does.
StartedWorkers started_workers(const WhileWaiting& while_waiting = {});

/// Returns the transport options that the environment sets. `number` is this worker's place in the
/// grid if it differs from its rank; -1 means the rank. This is the only function that reads
/// transport options from the environment. If the links are sockets, it waits as started_workers
/// does.
comm::Options link_options(int number = -1, const WhileWaiting& while_waiting = {});

/// Opens the transport that HETU_TRANSPORT names if this process was started as one of several
/// workers. Otherwise it opens a transport of one worker. Call it once per process. Throws as
/// comm::meet and comm::connect do.
std::unique_ptr<comm::Transport> open_links(int number = -1,
                                            const WhileWaiting& while_waiting = {});

}  // namespace hetu
