// Parameter servers for workers that are threads of one process. They follow the rules of
// ps/server/store.h under a mutex. Read by executor/ for runs without processes, and by tests.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "ps/client/parameter_client.h"
#include "ps/server/store.h"

namespace hetu::ps {

/// The servers of one job. Their clients keep them alive.
class LocalServers {
 public:
  /// Creates the servers. `on_applied`, if set, is called with each update of a part, in the order
  /// of application, from any thread, one call at a time.
  explicit LocalServers(int servers,
                        const std::function<void(const server::Applied&)>& on_applied = nullptr);
  ~LocalServers();
  LocalServers(const LocalServers&) = delete;
  LocalServers& operator=(const LocalServers&) = delete;

  /// Returns a worker's client. A client that is destroyed by an exception counts as dead.
  std::unique_ptr<ParameterClient> client(const ParameterOptions& options);

  /// Declares a worker dead, as if it had been silent. Members that wait for it get the error
  /// "worker N REASON".
  void worker_died(int worker, const std::string& reason);

 private:
  struct Shared;
  class Client;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hetu::ps
