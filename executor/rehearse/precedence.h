// Scheduling of a process that mostly sleeps and must wake on time. Read by rehearsals.
#pragma once
#include <sys/types.h>

#include <vector>

namespace hetu {

/// While it lives, the threads that this process has now, and those that they start, run before the
/// ordinary work of the machine (SCHED_RR), where the system allows it (CAP_SYS_NICE, or
/// RLIMIT_RTPRIO); elsewhere nothing changes. Only for threads that sleep: others would keep the
/// machine from its work.
class Precedence {
 public:
  Precedence();
  ~Precedence();
  Precedence(const Precedence&) = delete;
  Precedence& operator=(const Precedence&) = delete;

  /// Whether the system allowed it.
  bool granted() const { return !raised_.empty(); }

 private:
  std::vector<pid_t> raised_;
};

}  // namespace hetu
