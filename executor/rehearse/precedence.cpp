#include "executor/rehearse/precedence.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>

namespace hetu {
namespace {

bool set_policy(pid_t thread, int policy, int priority) {
  const sched_param how{priority};
  return sched_setscheduler(thread, policy, &how) == 0;
}

}  // namespace

Precedence::Precedence() {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    const auto thread = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    // A thread that already has another policy was configured deliberately and is left unchanged.
    if (sched_getscheduler(thread) != SCHED_OTHER) continue;
    if (set_policy(thread, SCHED_RR, 1)) raised_.push_back(thread);
  }
}

Precedence::~Precedence() {
  for (const pid_t thread : raised_) set_policy(thread, SCHED_OTHER, 0);
}

}  // namespace hetu
