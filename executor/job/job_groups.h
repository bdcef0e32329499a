// A worker's part in a job whose pipelines average their weights: its connection to the
// coordinator, and runs whose length a pipeline learns while they are in progress. Owned by
// Job.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/job/host_memory.h"
#include "executor/job/job_plan.h"
#include "executor/sync/averager.h"
#include "executor/sync/membership.h"
#include "net/transport/transport.h"

namespace hetu {

/// A worker's membership in the groups of a job whose pipelines average their weights.
class JobGroups {
 public:
  /// Joins the job's groups. Blocks until all workers have joined. `plan` and `links` belong to
  /// this worker and must outlive the object.
  JobGroups(const JobPlan& plan, comm::Transport& links);

  Membership& membership() { return *members_; }
  Averager& averager() { return *averager_; }
  /// Returns the memory needs of all workers of the job, in the order of their numbers, given those
  /// of the workers that the transport links. Every worker calls it.
  std::vector<WorkerNeed> of_all_pipelines(std::vector<WorkerNeed> own);

  /// Begins a run that leads from `step` to `step + steps`.
  void begin_run(std::int64_t step, std::int64_t steps);
  /// Returns a length for the plan of this run. Only a run that is known to be short needs a plan
  /// of its own length.
  int planned_steps() const;
  /// Returns the updates of all pipelines since the last call or the beginning of the run.
  std::int64_t new_batches();
  /// Returns the update whose learning rate applies to a step: at most the run's nominal last one.
  std::int64_t nominal(std::int64_t update) const { return std::min(update, run_end_); }
  /// Asks all workers to end the run early.
  void ask_to_stop();
  /// Ends a run after all of its updates are done, and returns the step that it has led to, the
  /// same on every worker. Every worker of the job calls it.
  std::int64_t end_run();
  /// Returns true if the last run ended early because a worker asked to stop.
  bool stop_asked() const { return stop_asked_; }

 private:
  bool any_asks_to_stop();
  std::int64_t mean_updates();
  double sum(double value, int part, const char* what);

  const JobPlan& plan_;
  comm::Transport& links_;
  std::unique_ptr<comm::Mesh> mesh_;  // null unless pipelines may be lost one by one
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
  bool asks_to_stop_ = false, stop_asked_ = false;
  std::int64_t batches_before_ = 0;  // updates in this run that new_batches() has returned
  std::int64_t run_begin_ = 0, run_end_ = 0;
};

}  // namespace hetu
