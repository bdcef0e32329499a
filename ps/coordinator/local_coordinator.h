// The coordinator for workers that are threads of one process. It follows the rules of
// coordinator.h under a mutex. Read by executor/ for runs without processes, and by tests.
#pragma once
#include <memory>

#include "ps/coordinator/group_client.h"

namespace hetu::ps {

/// The coordinator of one job, for one training after the other. Its clients share its state, so
/// they may outlive this object.
class LocalCoordinator {
 public:
  LocalCoordinator();
  ~LocalCoordinator();
  LocalCoordinator(const LocalCoordinator&) = delete;
  LocalCoordinator& operator=(const LocalCoordinator&) = delete;

  /// Returns a worker's client. If the worker has left the current training, the client is for the
  /// next one: the call blocks until all other workers have left, too. Throws InvalidArgument if
  /// options differ from those of earlier clients of this training, or name a slot that is taken or
  /// doesn't exist; Timeout.
  std::unique_ptr<GroupClient> client(const ClientOptions& options);

  /// Declares a pipeline dead, as if a worker had been silent.
  void lose(int pipeline, const std::string& reason);

 private:
  struct Shared;
  class Client;
  std::shared_ptr<Shared> shared_;
};

}  // namespace hetu::ps
