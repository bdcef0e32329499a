// Scheduling of a process that mostly sleeps and must wake up on time. Used by rehearsals.
#pragma once
#include <sys/types.h>

#include <vector>

namespace hetu {

/// Scope guard that gives the threads of this process, and the threads that they start, precedence
/// over the ordinary work of the machine (SCHED_RR). It needs CAP_SYS_NICE or RLIMIT_RTPRIO;
/// otherwise nothing changes. Use it only for threads that mostly sleep, because others would block
/// the rest of the machine.
class Precedence {
 public:
  Precedence();
  ~Precedence();
  Precedence(const Precedence&) = delete;
  Precedence& operator=(const Precedence&) = delete;

  /// Returns true if the system granted the scheduling class.
  bool granted() const { return !raised_.empty(); }

 private:
  std::vector<pid_t> raised_;
};

}  // namespace hetu
