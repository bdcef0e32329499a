// How the copies of a stage agree on their weights: one kind of instruction of the plan, carried
// out beside compute. Stages and loop know none of the ways; a job picks them by the plan.
#pragma once
#include <cstdint>
#include <functional>

#include "executor/compile/row.h"

namespace hetu {

/// One way, on one worker. Called by the loop, on its thread.
class WeightSync {
 public:
  /// An instruction of the way as it happened, for traces; nanoseconds of comm::now_ns().
  using Note =
      std::function<void(const Instr& instr, int step, std::int64_t start_ns, std::int64_t end_ns)>;
  static constexpr int kAllStages = -1;

  virtual ~WeightSync() = default;

  /// Whether an instruction is its own: REDUCE_GRAD, SYNC_A, SYNC_B and GATHER; PARTIAL_REDUCE;
  /// PUSH and PULL.
  virtual bool carries_out(Kind kind) const = 0;
  /// A run over several steps is to begin, from `step` on, of about `updates` updates per pipeline.
  virtual void begin_run(std::int64_t /*step*/, std::int64_t /*updates*/) {}
  /// The loop will follow `row`, in one run or many, until it is forgotten: what is the same in
  /// each run is found here.
  virtual void follow(const Row& /*row*/) {}
  virtual void forget(const Row& /*row*/) {}
  /// A run of `row` begins, from `step` on.
  virtual void begin(const Row& row, int step, Note note) = 0;
  /// From inside the gradient `at` of the row: the bucket of that stage is final.
  virtual void after_backward(const Action& /*at*/, int /*stage*/, int /*bucket*/) {}
  /// The row has come to its instruction; `step` is that of the stage's last update.
  virtual void reach(const Action& action, int step, std::int64_t now_ns) = 0;
  /// Sleeps until what has begun of the stage, or of all, stands in its memory: before its next
  /// update, and before norms are taken.
  virtual void wait(int stage) = 0;
  /// The same of K-FAC's factors alone, before one is inverted.
  virtual void wait_for_factors() {}
  /// Around the change of a stage's weights by an update, after wait().
  virtual void before_update(int /*stage*/) {}
  virtual void after_update(int /*stage*/) {}
  /// The row is done.
  virtual void end_of_run() = 0;
};

}  // namespace hetu
