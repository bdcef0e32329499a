// Whether K-FAC's work still fits the bubbles that it was placed in: measured after each cycle, and
// placed anew where times have drifted. `--replan`; owned by Trainer.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "executor/job/train_plan.h"
#include "executor/loop/trace_recorder.h"
#include "net/transport/transport.h"

namespace hetu {

class FillDrift {
 public:
  /// Of a job with a filled plan and Kfac::replan above 0. Both must outlive it.
  FillDrift(const TrainPlan& plan, comm::Transport& transport)
      : plan_(plan), transport_(transport), known_(plan.curvature->costs) {}

  /// For steps of which no trace is recorded.
  TraceRecorder& recorder() { return own_; }

  /// Step `step` has ended, and its instructions stand last in `recorder`. After the last step of a
  /// cycle, but for a first one where work wraps: the workers tell each other what it took. If more
  /// than Kfac::replan of that lies elsewhere than planned, or than when this was found last
  /// (pipeline/cost/drift.h), the work is placed anew by it, and unless steps are then predicted to
  /// be over 1 % longer, all get that plan, the same and proved, for the steps to come; worker 0
  /// says so in a line. Every worker calls it after every step. Throws Timeout and Comm.
  std::optional<CurvaturePlan> after(std::int64_t step, const TraceRecorder& recorder);

 private:
  bool note(std::int64_t step, const TraceRecorder& recorder);

  const TrainPlan& plan_;
  comm::Transport& transport_;
  Costs known_;  // what measured times are held against
  TraceRecorder own_;
  std::vector<TraceRecorder::Record> cycle_;  // what this worker did in its steps so far
  std::size_t noted_ = 0;                     // steps
};

}  // namespace hetu
