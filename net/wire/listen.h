// A listening socket at an endpoint that a user names. Read by `hetu ps serve`.
#pragma once
#include <string>
#include <vector>

namespace hetu::ps {

/// Closes its socket at the end, and removes the path of one that has a path.
class Listener {
 public:
  /// Listens at "tcp://A.B.C.D:PORT" (PORT 0 or *: a free one) or "ipc://PATH". A socket at PATH
  /// that nobody serves any more is replaced. Throws InvalidArgument: no such endpoint; Comm: it is
  /// in use, or cannot be had here.
  explicit Listener(const std::string& endpoint);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd() const { return fd_; }
  /// Where it listens, its port as a number.
  const std::string& endpoint() const { return endpoint_; }
  /// Where clients reach it: the endpoint or, of 0.0.0.0, each of this host's addresses.
  std::vector<std::string> reached_at() const;

 private:
  void listen_tcp(const std::string& host, const std::string& port);
  void listen_path(const std::string& path);

  int fd_ = -1;
  std::string endpoint_;
  std::string path_;  ///< to be removed
};

}  // namespace hetu::ps
