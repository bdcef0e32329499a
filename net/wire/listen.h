// A listening socket at an endpoint that a user chooses. Read by `hetu ps serve`.
#pragma once
#include <string>
#include <vector>

namespace hetu::ps {

/// A listening socket. The destructor closes it and removes the path of a Unix socket.
class Listener {
 public:
  /// Listens at "tcp://A.B.C.D:PORT" or "ipc://PATH". PORT 0 or * means any free port. A socket at
  /// PATH that no process serves is replaced. Throws InvalidArgument for a malformed endpoint.
  /// Throws Comm if the endpoint is in use or cannot be opened on this host.
  explicit Listener(const std::string& endpoint);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd() const { return fd_; }
  /// Returns the endpoint with the actual port number.
  const std::string& endpoint() const { return endpoint_; }
  /// Returns the endpoints that clients can use. For 0.0.0.0 this is one per address of this host,
  /// with loopback addresses last.
  std::vector<std::string> reached_at() const;

 private:
  void listen_tcp(const std::string& host, const std::string& port);
  void listen_path(const std::string& path);

  int fd_ = -1;
  std::string endpoint_;
  std::string path_;  ///< path to remove; "" for TCP
};

}  // namespace hetu::ps
