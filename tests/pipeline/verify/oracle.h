// An oracle for the verifier that shares only the plain data of a plan with it. It counts the
// required instructions, and then runs the plan in every order that its workers could choose.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// The result over all orders of execution of one plan.
struct Verdict {
  std::string wrong;       ///< the error of the plan; empty if it is valid
  bool deadlocks = false;  ///< some order gets stuck
  std::int64_t states = 0;
};

/// Judges a small plan with this number of send slots (negative: unbounded). Returns nullopt if it
/// has more than `most_states` states.
std::optional<Verdict> judge(const Schedule& schedule, int send_slots, double most_states = 3e5);

}  // namespace hetu
