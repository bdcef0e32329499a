// Workers that may die one by one: links over ZeroMQ, of which a dead peer breaks its own only. For
// averages between pipelines that shall survive each other (--on-failure shrink).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "net/transport/transport.h"

namespace hetu::comm {

/// Where this worker stands and how it is reached. All workers of a mesh share one key pair (64
/// hexadecimal digits each), and nobody else gets in.
struct MeshPlace {
  int worker = 0;
  int workers = 1;
  std::string endpoint;  ///< to listen at: "ipc://PATH", or "tcp://ADDRESS:*" for any free port
  std::string public_key;
  std::string secret_key;
};

/// A transport over which messages are copied when they are sent: a send is done at once, a receive
/// when its message has come. After lose(peer) requests to and from that peer fail; all others go
/// on.
class Mesh : public Transport {
 public:
  using Transport::Transport;
  /// Where the others reach this worker.
  virtual const std::string& endpoint() const = 0;
  /// How all workers are reached, by number; this one's own is not read, one that is "" is lost.
  /// Sends wait for it.
  virtual void meet(const std::vector<std::string>& endpoints) = 0;
  /// A worker is dead; `why` goes into the errors of all requests that name it.
  virtual void lose(int worker, const std::string& why) = 0;
};

/// Listens. Throws Unsupported in a build without ZeroMQ, Comm if the endpoint cannot be served.
std::unique_ptr<Mesh> open_mesh(const MeshPlace& place, const Options& options = {});

}  // namespace hetu::comm
