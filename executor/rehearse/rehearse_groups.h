// Rehearsals of pipelines that average in groups: a worker's runs, each as long as the coordinator
// says. Read by rehearse.cpp.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "executor/loop/run.h"
#include "executor/rehearse/timed_stages.h"
#include "executor/sync/averager.h"
#include "ps/coordinator/group_client.h"

namespace hetu {

/// How the pipelines of a rehearsal find together.
struct RehearsedGroups {
  groups::Options policy;  ///< stages and pipelines are the plan's
  std::string log = {};    ///< file of the group log, "" for none
  /// A worker's line to the coordinator. Empty, in one process: it has a coordinator of its own.
  std::function<std::unique_ptr<ps::GroupClient>(const ps::ClientOptions&)> connect = {};
};

/// The plan with a step per update, as pipelines that average go on. Throws InvalidArgument unless
/// it updates after every backward and is long enough for its body to repeat.
Schedule by_updates(const Schedule& lowered);

/// This worker's seat for the whole rehearsal.
class GroupSeat {
 public:
  /// Connects; every worker of the transport makes its own. The transport must outlive it.
  GroupSeat(const Schedule& lowered, const Costs& costs, const Pace& pace,
            const RehearsedGroups& how, comm::Transport& transport);
  Averager& averager() { return *averager_; }

 private:
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
};

/// Runs of one plan.
class GroupRuns {
 public:
  /// `plan` is by_updates; all must outlive it.
  GroupRuns(const Schedule& plan, TimedStages& stages, const Interpreter::Links& links,
            Averager& averager);
  /// Begins a run of the plan's length: before anyone starts.
  void begin();
  /// Goes through it, drains, and averages over all pipelines.
  void run(int first_step, TraceRecorder& trace);
  /// The mean of this worker's weights after it. They were the pipeline's number before, and each
  /// update added 1.
  double weight() const { return weight_; }

 private:
  const Schedule& plan_;
  TimedStages& stages_;
  Averager& averager_;
  std::vector<WeightSync*> syncs_;
  int pipeline_;
  Run run_;
  double weight_ = 0;
};

}  // namespace hetu
