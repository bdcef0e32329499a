// Random plans for property tests: of the methods there are, and of no method at all.
#pragma once
#include <random>

#include "pipeline/ir/schedule.h"

namespace hetu {

class RandomPlans {
 public:
  explicit RandomPlans(std::uint64_t seed) : random_(seed) {}

  /// 0…n-1.
  int below(std::size_t n) { return static_cast<int>(random_() % n); }
  bool coin() { return below(2) == 0; }

  /// A method of methods() at a size that it has, at most about `most` stages and micro-batches;
  /// sometimes recomputed.
  Schedule of_a_method(int most);

  /// Over one to three waves: hetpipe, or a method whose steps have their flushes in the rows.
  Schedule of_waves(int most);

  /// Any placement of a model of one or two replicas, in any order that can run.
  Schedule of_no_method(int most);

  /// Lowered, with random edges, ties, buckets, scalars and servers where the plan can have them.
  Schedule lowered(const Schedule& schedule);

 private:
  std::mt19937_64 random_;
};

/// The same plan with these rows, each in one piece.
Schedule with_rows(const Schedule& schedule, const std::vector<std::vector<Instr>>& rows);

std::vector<std::vector<Instr>> rows_of(const Schedule& schedule);

/// One line per worker, for messages.
std::string listing(const Schedule& schedule);

}  // namespace hetu
