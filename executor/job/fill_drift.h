// Detects that K-FAC's work no longer fits the bubbles that it was placed in, and places it again.
// Times are measured after each cycle. Implements `--replan`; owned by Job.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "executor/job/job_plan.h"
#include "executor/loop/trace_recorder.h"
#include "net/transport/transport.h"

namespace hetu {

/// Compares the times of each K-FAC cycle with those that its plan was made for.
class FillDrift {
 public:
  /// For a job with a filled plan and Kfac::replan above 0. Plan and transport must outlive this
  /// object.
  FillDrift(const JobPlan& plan, comm::Transport& transport)
      : plan_(plan), transport_(transport), known_(plan.curvature->costs) {}

  /// Returns the recorder for steps that no trace records.
  TraceRecorder& recorder() { return own_; }

  /// Checks for drift after step `step`, whose instructions are the last ones in `recorder`. Every
  /// worker calls it after every step.
  ///
  /// After the last step of a cycle (except a first cycle where work wraps), the workers exchange
  /// the measured times. A new plan is considered if their drift (pipeline/cost/drift.h) exceeds
  /// Kfac::replan. Drift is relative to the times that the plan was made for, or to those at the
  /// previous detection. The work is then placed by the measured times. The new plan is returned
  /// unless its steps are predicted to be more than 1 % longer. All workers get the same verified
  /// plan for the following steps, and worker 0 logs one line. Throws Timeout and Comm.
  std::optional<CurvaturePlan> after(std::int64_t step, const TraceRecorder& recorder);

 private:
  bool note(std::int64_t step, const TraceRecorder& recorder);

  const JobPlan& plan_;
  comm::Transport& transport_;
  Costs known_;  // costs that measured times are compared with
  TraceRecorder own_;
  std::vector<TraceRecorder::Record> cycle_;  // this worker's records of the cycle so far
  std::size_t noted_ = 0;                     // steps of the cycle so far
};

}  // namespace hetu
