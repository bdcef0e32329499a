// Links over ZeroMQ between workers that may die one by one. A dead peer breaks only its own link.
// Used for averages between pipelines that must survive each other (--on-failure shrink).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// The number and address of this worker in a mesh. All workers of a mesh share one key pair; a key
/// has 64 hexadecimal digits. Processes without the keys are refused.
struct MeshAddress {
  int worker = 0;
  int workers = 1;
  /// Address to listen at: "ipc://PATH", or "tcp://ADDRESS:*" for any free port.
  std::string endpoint;
  std::string public_key;
  std::string secret_key;
};

/// A transport that copies messages when they are sent. A send is done at once, and a receive when
/// its message has arrived. After lose(peer), requests to and from that peer fail, and all others
/// continue.
class Mesh : public Transport {
 public:
  using Transport::Transport;
  /// Returns the address at which the other workers reach this one.
  virtual const std::string& endpoint() const = 0;
  /// Sets the addresses of all workers, by number. This worker's own entry is not read, and a
  /// worker with "" counts as lost. Messages are sent only after this call.
  virtual void meet(const std::vector<std::string>& endpoints) = 0;
  /// Marks a worker as dead. The errors of all requests that name it contain `why`.
  virtual void lose(int worker, const std::string& why) = 0;
};

/// Opens a mesh and listens. Throws Unsupported in a build without ZeroMQ, and Comm if the endpoint
/// cannot be used.
std::unique_ptr<Mesh> open_mesh(const MeshAddress& address, const Options& options = {});

}  // namespace hetu::comm
