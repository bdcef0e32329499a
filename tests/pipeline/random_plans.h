// Random plans for property tests: plans of the known methods, and plans of no method.
#pragma once
#include <random>

#include "pipeline/ir/schedule.h"

namespace hetu {

class RandomPlans {
 public:
  explicit RandomPlans(std::uint64_t seed) : random_(seed) {}

  /// Returns a number in [0, n).
  int below(std::size_t n) { return static_cast<int>(random_() % n); }
  bool coin() { return below(2) == 0; }

  /// Returns a plan of a method of methods() at a legal size, with at most about `most` stages and
  /// micro-batches. Some plans recompute.
  Schedule of_a_method(int most);

  /// Returns a plan over one to three waves: hetpipe, or a method whose rows contain the flushes of
  /// its steps.
  Schedule of_waves(int most);

  /// Returns a plan with any placement of a model of one or two replicas, in any order that can
  /// run.
  Schedule of_no_method(int most);

  /// Lowers the plan, with random edges, ties, buckets, scalars and servers where the plan allows
  /// them.
  Schedule lowered(const Schedule& schedule);

 private:
  std::mt19937_64 random_;
};

/// Returns the plan with the given rows, each without a repeated body.
Schedule with_rows(const Schedule& schedule, const std::vector<std::vector<Instr>>& rows);

std::vector<std::vector<Instr>> rows_of(const Schedule& schedule);

/// Returns one line per worker, for messages.
std::string listing(const Schedule& schedule);

}  // namespace hetu
