// Wakes a sleeping thread from its own process or from another process of the same host. It needs
// no files and no ports: the bell is a datagram socket in Linux's abstract namespace, which
// vanishes with its process.
#pragma once
#include <cstdint>
#include <string>

namespace hetu::comm {

/// The doorbell of one worker process, owned by its progress thread. Other threads may call only
/// `wake`.
class Doorbell {
 public:
  /// Listens under the name (job, worker). `job` must be unique to the job. Throws Comm if the
  /// system refuses.
  Doorbell(std::string job, int worker);
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  /// Wakes the owner of this doorbell.
  void wake() const;
  /// Wakes another worker of the job. Returns false if nobody listens under that name here.
  bool ring(int worker) const;
  /// Sleeps until it is woken, until `also` (a file descriptor; -1 for none) becomes readable, or
  /// until `timeout_ns` nanoseconds have passed. Returns at once if it was woken since the last
  /// call.
  void sleep(std::int64_t timeout_ns, int also = -1) const;

 private:
  std::string job_;
  int socket_ = -1;
  int event_ = -1;
};

/// Returns a text that identifies the boot of the machine and the network namespace. Doorbells work
/// only between processes for which this text is equal.
std::string doorbell_domain();

}  // namespace hetu::comm
