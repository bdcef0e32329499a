// What a worker asks of the coordinator: with whose weights its stage's are averaged next. Read by
// executor/; implemented over ZeroMQ (connect_coordinator) and for threads of one process
// (local_coordinator.h). No tensor passes here.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::ps {

/// A closed group, as one of its members hears of it. Fields as in groups::Decision.
struct Answer {
  std::vector<int> members;           ///< pipelines, ascending; the asker alone is legal
  std::vector<std::int64_t> updates;  ///< of each member: its count when it asked
  std::int64_t serial = 0;            ///< of the stage, from 0, over all runs
  /// Last update of the hearer's pipeline in this run; groups::kRunsOn while that is not known.
  std::int64_t stop_after = groups::kRunsOn;
  /// AD-PSGD: the pipeline whose request it answers; -1: every member has asked.
  int initiator = -1;
  std::vector<double> weights = {};  ///< per member, sum 1; empty: all alike
  bool operator==(const Answer&) const = default;
};

/// What the workers of all living pipelines have told each other, the same for each of them.
struct Rendezvous {
  std::vector<int> members;  ///< pipelines, ascending
  bool all_ok = true;
  bool any_flag = false;
};

/// A pipeline that has left the job (on_failure_shrink), and what was lost with it: the updates
/// after the last one that is known to have reached another pipeline, at all of its stages.
struct Lost {
  int pipeline = 0;
  std::int64_t updates = 0;   ///< those that any of its stages had asked a group for
  std::int64_t averaged = 0;  ///< the last one of which every stage was averaged with others
  std::string reason;
  bool operator==(const Lost&) const = default;
};

/// Who a client is and what its job agrees upon; all clients of a job give the same policy and log.
struct ClientOptions {
  groups::Options policy;
  int worker = 0;                  ///< its number, for messages to people
  int pipeline = 0;                ///< of policy.pipelines
  int stage = 0;                   ///< of policy.stages
  double timeout_s = 300;          ///< deadline of wait and of the connection (HETU_TIMEOUT)
  std::string group_log;           ///< file of the group log (JSONL), "" for none
  std::string endpoint;            ///< where this worker's copies in other pipelines reach it
  bool on_failure_shrink = false;  ///< a dead pipeline leaves the job instead of ending it
};

/// What every worker says of a run before it.
struct RunStart {
  std::int64_t done = 0;     ///< updates of its pipeline before, the same on all its stages
  std::int64_t updates = 0;  ///< wanted of each pipeline; see groups::Policy::begin_run
  std::int64_t step = 0;     ///< of the training, at which it begins; as updates the same for all
  bool operator==(const RunStart&) const = default;
};

/// One worker's line to the coordinator, for its one stage of its one pipeline. All functions may
/// be called from several threads. Those that throw Comm name what is dead; the client is then dead
/// too.
class GroupClient {
 public:
  virtual ~GroupClient() = default;

  /// Starts a run; every worker calls it before its first request of the run. Never blocks:
  /// requests wait at the coordinator until all workers have begun. Throws Comm.
  virtual void begin_run(const RunStart& run) = 0;

  /// Ends the run that this worker has begun early, for all; see groups::Policy::stop_soon. Never
  /// blocks. Throws Comm.
  virtual void stop_soon() = 0;

  /// Asks for a group for the weights after update `update` (this pipeline's count). Never blocks.
  /// At most one request may be open. Throws Comm; InvalidArgument while one is open.
  virtual void request(std::int64_t update) = 0;

  /// The answer to the open request, which closes it; nothing while there is none. Throws Comm.
  virtual std::optional<Answer> poll() = 0;

  /// The next group that this worker takes part in without having asked (AD-PSGD: its pipeline is
  /// the passive one), in the order in which they closed; nothing while there is none. Throws Comm.
  virtual std::optional<Answer> poll_invitation() = 0;

  /// Sleeps until the answer is there. Throws Timeout, naming `what`, after timeout_s; Comm.
  virtual Answer wait(const std::function<std::string()>& what) = 0;

  /// Calls `ring` from another thread after each answer, invitation, failure or lost pipeline; it
  /// must not block nor call the client. An empty function withdraws it.
  virtual void on_news(std::function<void()> ring) = 0;

  /// Sleeps until all workers of all living pipelines have called it: they hear who they are,
  /// whether all said `ok`, and whether one raised `flag`. Throws Timeout, naming `what`; Comm.
  virtual Rendezvous rendezvous(bool ok, bool flag, const std::function<std::string()>& what) = 0;

  /// Where the workers of this stage are reached, by pipeline; "" for a lost one. Sleeps until all
  /// have connected. With on_failure_shrink. Throws Timeout, Comm.
  virtual std::vector<std::string> endpoints() = 0;

  /// Calls `lost` from another thread for each pipeline that leaves, at once for those that have,
  /// and for this worker's own when the client is dead; under the same rules as on_news.
  virtual void on_lost(std::function<void(int pipeline)> lost) = 0;

  /// Pipelines that have left the job (on_failure_shrink), ascending.
  virtual std::vector<Lost> lost_pipelines() = 0;

  /// Tells the coordinator that this worker has ended in order, and sleeps until it has heard it,
  /// is dead, or kDeadAfterS have passed: the worker may begin its next training then. Called by
  /// the destructor, too, unless an exception passes.
  virtual void leave() = 0;
};

/// Connects to the coordinator that heturun offers in `address` (HETU_COORDINATOR, config/env.h).
/// Blocks until it has answered. Throws Config if the address is none, Comm or Timeout if the
/// coordinator does not answer or refuses, Unsupported in a build without ZeroMQ.
std::unique_ptr<GroupClient> connect_coordinator(const std::string& address,
                                                 const ClientOptions& options);

/// Where a worker may listen for its copies in other pipelines, and the key pair of the job's
/// workers.
struct Endpoint {
  std::string endpoint;  ///< of the coordinator's kind: "ipc://PATH" beside it, or "tcp://OWN IP:*"
  std::string public_key;
  std::string secret_key;
};

/// The endpoint of a worker of the job that HETU_COORDINATOR is of. Throws as connect_coordinator.
Endpoint endpoint_of_worker(const std::string& address, int worker);

}  // namespace hetu::ps
