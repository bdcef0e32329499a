// What is recorded of a training job on one worker, and the trace file of all workers that comes of
// it. Owned by Trainer while it records.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/job/run_trace.h"
#include "executor/job/train_plan.h"
#include "executor/loop/trace_recorder.h"
#include "executor/stage/block_times.h"
#include "net/transport/collective.h"

namespace hetu {

class TrainTrace {
 public:
  /// `plan` must outlive it. Times count from `origin_ns` of comm::now_ns().
  TrainTrace(const TrainPlan& plan, std::int64_t origin_ns);

  TraceRecorder& recorder() { return recorder_; }
  BlockTimes& blocks() { return blocks_; }

  /// A run without a flush begins, by a plan of at most its length; or has ended after so many.
  void begin_run(std::int64_t first_step, Schedule plan);
  void end_run(int steps);

  /// Steps so far went by that plan of K-FAC's work, and those to come go by the job's new one.
  void was_planned_by(CurvaturePlan plan) { earlier_.push_back(std::move(plan)); }

  /// Writes what all workers recorded, beside what the plan predicts from the typical ones of those
  /// times, as one trace file, and forgets it. Every worker calls it; worker 0 writes if its
  /// pipeline `speaks` for what the transport links. `tables`: counters_json of this worker. Throws
  /// Io.
  void write(const std::string& path, comm::Transport& transport, comm::Reducer& reducer,
             bool speaks, const std::string& tables);

 private:
  const TrainPlan& plan_;
  std::int64_t origin_ns_;
  TraceRecorder recorder_;
  BlockTimes blocks_;
  std::vector<PlannedRun> runs_;  // asynchronous
  std::vector<CurvaturePlan> earlier_;
};

}  // namespace hetu
