// The coordinator for workers that are threads of one process: the same rules (coordinator.h) under
// a mutex. Read by executor/ for runs without processes, and by tests.
#pragma once
#include <memory>

#include "ps/coordinator/group_client.h"

namespace hetu::ps {

/// One job's coordinator, of its trainings one after the other. Its clients keep it alive.
class LocalCoordinator {
 public:
  LocalCoordinator();
  ~LocalCoordinator();
  LocalCoordinator(const LocalCoordinator&) = delete;
  LocalCoordinator& operator=(const LocalCoordinator&) = delete;

  /// A worker's client. Whoever has left begins the next training: it waits here until all others
  /// have left, too. Throws InvalidArgument if options differ from those of this training's clients
  /// before, or name a place that is taken or does not exist; Timeout.
  std::unique_ptr<GroupClient> client(const ClientOptions& options);

  /// Declares a pipeline dead, as a silent worker would be.
  void lose(int pipeline, const std::string& reason);

 private:
  struct Shared;
  class Client;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hetu::ps
