// An oracle for the verifier that shares nothing with it but the plain data of a plan: it counts
// what must be there, and then runs the plan in every order that its workers could run it in.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// What all orders of execution of one plan come to.
struct Verdict {
  std::string wrong;       ///< why the plan is wrong; empty: it is right
  bool deadlocks = false;  ///< some order gets stuck
  std::int64_t states = 0;
};

/// Judges a small plan with this many send slots (negative: unbounded). Nothing if it has more than
/// `most_states` states.
std::optional<Verdict> judge(const Schedule& schedule, int send_slots, double most_states = 3e5);

}  // namespace hetu
