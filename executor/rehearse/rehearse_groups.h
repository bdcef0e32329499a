// Rehearsals of pipelines that average in groups: a worker's runs, whose length the coordinator
// decides. Used by rehearse.cpp.
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

/// The group formation of a rehearsal's pipelines.
struct RehearsedGroups {
  groups::Options policy;  ///< without the numbers of stages and pipelines, which are the plan's
  std::string log = {};    ///< path of the group log; "" for none
  /// Opens a worker's connection to the coordinator. Empty for a rehearsal in one process, which
  /// has its own coordinator.
  std::function<std::unique_ptr<ps::GroupClient>(const ps::ClientOptions&)> connect = {};
};

/// Returns the plan with one step per update, as pipelines that average run it. Throws
/// InvalidArgument unless the plan updates after every backward and is long enough for its body to
/// repeat.
Schedule by_updates(const Schedule& lowered);

/// This worker's membership in the groups for the whole rehearsal.
class GroupMember {
 public:
  /// Connects to the coordinator. Collective: every worker of the transport constructs its own
  /// object. The transport must outlive it.
  GroupMember(const Schedule& lowered, const Costs& costs, const Pace& pace,
              const RehearsedGroups& how, comm::Transport& transport);
  Averager& averager() { return *averager_; }

 private:
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
};

/// The runs of one plan on one worker.
class GroupRuns {
 public:
  /// `plan` must come from by_updates. All arguments must outlive the object.
  GroupRuns(const Schedule& plan, TimedStages& stages, const Interpreter::Links& links,
            Averager& averager);
  /// Begins a run of the plan's length. Call it before any worker starts.
  void begin();
  /// Runs all steps, drains, and averages over all pipelines.
  void run(int first_step, TraceRecorder& trace);
  /// Returns the mean of this worker's weights after the run. They start at the pipeline's number,
  /// and each update adds 1.
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
