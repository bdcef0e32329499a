// Wakes a sleeping thread: from its own process, or from another process of the same host. No files
// and no ports: the bell is a datagram socket in Linux's abstract namespace, gone with its process.
#pragma once
#include <cstdint>
#include <string>

namespace hetu::comm {

/// One per worker process; owned by its progress thread. Only `wake` may be called from other
/// threads.
class Doorbell {
 public:
  /// Listens as (job, worker); `job` is unique to the job. Throws Comm if the system refuses.
  Doorbell(std::string job, int worker);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Wakes the owner of this bell.
  void wake() const;
  /// Wakes another worker of the job; false if nobody listens under that name here.
  bool ring(int worker) const;
  /// Sleeps until woken, until `also` (a file descriptor, -1: none) is readable or until timeout_ns
  /// have passed; returns at once if woken since the last call.
  void sleep(std::int64_t timeout_ns, int also = -1) const;

 private:
  std::string job_;
  int socket_ = -1;
  int event_ = -1;
};

/// What tells apart two places that a doorbell cannot reach across: this boot of the machine and
/// its network namespace.
std::string doorbell_domain();

}  // namespace hetu::comm
