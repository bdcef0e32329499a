// Records a training job on one worker, and combines the records of all workers into a trace file.
// Owned by Job while it records.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/job/job_plan.h"
#include "executor/job/run_trace.h"
#include "executor/loop/trace_recorder.h"
#include "executor/stage/block_times.h"
#include "net/transport/collective.h"

namespace hetu {

/// The recorded events and block times of one worker.
class JobTrace {
 public:
  /// `plan` must outlive this object. Times count from `origin_ns` on the clock of comm::now_ns().
  JobTrace(const JobPlan& plan, std::int64_t origin_ns);

  TraceRecorder& recorder() { return recorder_; }
  BlockTimes& blocks() { return blocks_; }

  /// Notes that a run without a flush begins, with a plan that is at most as long as the run.
  /// end_run() notes that it has ended after `steps` steps.
  void begin_run(std::int64_t first_step, Schedule plan);
  void end_run(int steps);

  /// Notes that the steps so far used `plan` for K-FAC's work. Later steps use the job's new plan.
  void was_planned_by(CurvaturePlan plan) { earlier_.push_back(std::move(plan)); }

  /// Writes the records of all workers as one trace file, together with the prediction that the
  /// plan gives for the typical ones of the measured times. Then forgets the records. Every worker
  /// calls it. Worker 0 of the transport writes the file if `speaks`. Where each pipeline has its
  /// own transport, `speaks` is true only in the first living pipeline. `tables` is this worker's
  /// counters_json. Throws Io.
  void write(const std::string& path, comm::Transport& transport, comm::Reducer& reducer,
             bool speaks, const std::string& tables);

 private:
  const JobPlan& plan_;
  std::int64_t origin_ns_;
  TraceRecorder recorder_;
  BlockTimes blocks_;
  std::vector<PlannedRun> runs_;  // runs of an asynchronous plan
  std::vector<CurvaturePlan> earlier_;
};

}  // namespace hetu
