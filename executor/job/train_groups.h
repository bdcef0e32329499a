// A worker of a job whose pipelines average their weights: its line to the coordinator, and runs
// whose length the pipeline learns while they go on. Owned by Trainer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "executor/job/host_memory.h"
#include "executor/job/train_plan.h"
#include "executor/sync/averager.h"
#include "executor/sync/membership.h"
#include "net/transport/transport.h"

namespace hetu {

class TrainGroups {
 public:
  /// Joins the job's groups; blocks until all workers do. `plan` and `links`, those of this worker,
  /// must outlive it.
  TrainGroups(const TrainPlan& plan, comm::Transport& links);

  Membership& membership() { return *members_; }
  Averager& averager() { return *averager_; }
  /// What all workers of the job need, in the order of their numbers, from those of the links.
  std::vector<WorkerNeed> of_all_pipelines(std::vector<WorkerNeed> own);

  /// A run begins that leads from `step` to `step + steps`.
  void begin_run(std::int64_t step, std::int64_t steps);
  /// A length that a plan of this run may have: only a run that is known to be short needs a plan
  /// of its own length.
  int planned_steps() const;
  /// Updates of all pipelines since the last call or the begin of the run.
  std::int64_t new_batches();
  /// By which update's rate a step counts: one no further than the run's nominal length.
  std::int64_t nominal(std::int64_t update) const { return std::min(update, run_end_); }
  void ask_to_stop();
  /// All updates of the run are done, everywhere the same: the step that it has led to. Every
  /// worker of the job calls it.
  std::int64_t end_run();
  /// Whether the last run was ended because a worker had asked.
  bool stop_asked() const { return stop_asked_; }

 private:
  bool any_asks_to_stop();
  std::int64_t mean_updates();
  double sum(double value, int part, const char* what);

  const TrainPlan& plan_;
  comm::Transport& links_;
  std::unique_ptr<comm::Mesh> mesh_;  // null unless pipelines may die one by one
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
  bool asks_to_stop_ = false, stop_asked_ = false;
  std::int64_t batches_before_ = 0;  // of all pipelines, in this run
  std::int64_t run_begin_ = 0, run_end_ = 0;
};

}  // namespace hetu
