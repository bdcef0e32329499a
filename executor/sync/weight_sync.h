// The interface of weight synchronisation strategies. A strategy runs some kinds of instructions,
// while compute goes on. Stages and loop know no strategy; a job chooses them by the plan.
#pragma once
#include <cstdint>
#include <functional>

#include "executor/compile/row.h"

namespace hetu {

/// A strategy on one worker. The loop calls it on its own thread.
class WeightSync {
 public:
  /// Records an instruction of the strategy for traces; times are comm::now_ns().
  using Note =
      std::function<void(const Instr& instr, int step, std::int64_t start_ns, std::int64_t end_ns)>;
  static constexpr int kAllStages = -1;

  virtual ~WeightSync() = default;

  /// Returns true if the strategy runs instructions of this kind: REDUCE_GRAD, SYNC_A, SYNC_B and
  /// GATHER; PARTIAL_REDUCE; or PUSH and PULL.
  virtual bool carries_out(Kind kind) const = 0;
  /// Prepares for a run over several steps from `step` on, with about `updates` updates per
  /// pipeline.
  virtual void begin_run(std::int64_t /*step*/, std::int64_t /*updates*/) {}
  /// Prepares for runs of `row`, until forget(row). Work that is the same in each run is done here.
  virtual void follow(const Row& /*row*/) {}
  virtual void forget(const Row& /*row*/) {}
  /// Starts a run of `row` at `step`.
  virtual void begin(const Row& row, int step, Note note) = 0;
  /// Notes, from within the gradient `at` of the row, that the bucket of that stage is final.
  virtual void after_backward(const Action& /*at*/, int /*stage*/, int /*bucket*/) {}
  /// Starts the row's instruction; `step` is that of the stage's last update. The operation may
  /// still be in progress afterwards, see wait().
  virtual void run_instruction(const Action& action, int step, std::int64_t now_ns) = 0;
  /// Waits until the results of all begun operations of the stage, or of all stages, are in its
  /// memory. The loop calls it before the stage's next update and before norms are computed.
  virtual void wait(int stage) = 0;
  /// As wait(), for K-FAC's factors only, before one is inverted.
  virtual void wait_for_factors() {}
  /// Bracket the change of a stage's weights by an update, after wait().
  virtual void before_update(int /*stage*/) {}
  virtual void after_update(int /*stage*/) {}
  /// Ends the run after the last instruction of the row.
  virtual void end_of_run() = 0;
};

}  // namespace hetu
