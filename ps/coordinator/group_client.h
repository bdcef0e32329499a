// A worker's interface to the coordinator, which decides with which pipelines a stage's weights are
// averaged next. Read by executor/. Implemented over ZeroMQ (connect_coordinator) and for threads
// of one process (local_coordinator.h). No tensors pass here.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/groups/policy.h"

namespace hetu::ps {

/// A closed group, as reported to one of its members. Fields as in groups::Decision.
struct Answer {
  std::vector<int> members;           ///< pipelines, ascending; a group of one is valid
  std::vector<std::int64_t> updates;  ///< per member: its update count when it asked
  std::int64_t serial = 0;  ///< number of the group within the stage, from 0, over all runs
  /// Last update of the receiver's pipeline in this run; groups::kRunsOn while it is unknown.
  std::int64_t stop_after = groups::kRunsOn;
  /// AD-PSGD: the pipeline whose request this group answers; -1: every member has asked.
  int initiator = -1;
  std::vector<double> weights = {};  ///< per member, with sum 1; empty: equal weights
  bool operator==(const Answer&) const = default;
};

/// The combined contributions of all workers in a rendezvous. Every worker gets the same.
struct Rendezvous {
  std::vector<int> members;  ///< pipelines, ascending
  bool all_ok = true;
  bool any_flag = false;
};

/// A pipeline that has left the job (on_failure_shrink), and the updates lost with it: those after
/// the last update that is known to have reached another pipeline at all of its stages.
struct Lost {
  int pipeline = 0;
  std::int64_t updates = 0;  ///< newest update for which any of its stages requested a group
  /// newest update that was averaged with other pipelines at every stage
  std::int64_t averaged = 0;
  std::string reason;
  bool operator==(const Lost&) const = default;
};

/// A client's identity, and the options that all clients of its job must share (policy, log,
/// failure mode).
struct ClientOptions {
  groups::Options policy;
  int worker = 0;          ///< the worker's number, for error texts
  int pipeline = 0;        ///< below policy.pipelines
  int stage = 0;           ///< below policy.stages
  double timeout_s = 300;  ///< deadline of wait and of the connection, in seconds (HETU_TIMEOUT)
  std::string group_log;   ///< file of the group log (JSONL); "": no log
  std::string endpoint;    ///< where this worker's copies in other pipelines connect
  bool on_failure_shrink = false;  ///< a dead pipeline leaves the job instead of ending it
};

/// A worker's announcement of a run.
struct RunStart {
  std::int64_t done = 0;  ///< updates of its pipeline before the run, equal on all stages
  /// updates wanted of each pipeline, equal on all workers; see groups::Policy::begin_run
  std::int64_t updates = 0;
  std::int64_t step = 0;  ///< training step at which the run begins, equal on all workers
  bool operator==(const RunStart&) const = default;
};

/// A worker's connection to the coordinator, for its stage of its pipeline. All functions may be
/// called from several threads. Functions that throw Comm name the dead worker or coordinator. The
/// client is then dead, too.
class GroupClient {
 public:
  virtual ~GroupClient() = default;

  /// Begins a run. Every worker calls it before its first request of the run. Never blocks:
  /// requests wait at the coordinator until all workers have begun. Throws Comm.
  virtual void begin_run(const RunStart& run) = 0;

  /// Ends this run early for all workers; see groups::Policy::stop_soon. Never blocks. Throws Comm.
  virtual void stop_soon() = 0;

  /// Requests a group for the weights after update `update`, counted in this pipeline. Never
  /// blocks. At most one request may be open. Throws Comm; InvalidArgument while a request is open.
  virtual void request(std::int64_t update) = 0;

  /// Returns the answer to the open request, which closes the request. Returns nullopt if there is
  /// no answer yet. Throws Comm.
  virtual std::optional<Answer> poll() = 0;

  /// Returns the next group that includes this worker although it has not asked (AD-PSGD: its
  /// pipeline is the passive one). Groups come in the order in which they closed. Returns nullopt
  /// if there is none. Throws Comm.
  virtual std::optional<Answer> poll_invitation() = 0;

  /// Blocks until the answer arrives and returns it. Throws Timeout, with `what`, after timeout_s;
  /// Comm.
  virtual Answer wait(const std::function<std::string()>& what) = 0;

  /// Sets a callback that another thread calls after each answer, invitation, failure or lost
  /// pipeline. The callback must not block or call the client. An empty function removes it.
  virtual void on_news(std::function<void()> ring) = 0;

  /// Blocks until all workers of all living pipelines have called it. Returns the members, whether
  /// all passed `ok`, and whether any passed `flag`. Throws Timeout, with `what`; Comm.
  virtual Rendezvous rendezvous(bool ok, bool flag, const std::function<std::string()>& what) = 0;

  /// Returns the endpoints of this stage's workers by pipeline, "" for a lost pipeline. Blocks
  /// until all have connected. Only with on_failure_shrink. Throws Timeout, Comm.
  virtual std::vector<std::string> endpoints() = 0;

  /// Sets a callback that another thread calls for each pipeline that leaves. It is called
  /// immediately for pipelines that have left, and for this worker's own pipeline when the client
  /// fails. The rules of on_news apply.
  virtual void on_lost(std::function<void(int pipeline)> lost) = 0;

  /// Returns the pipelines that have left the job (on_failure_shrink), ascending.
  virtual std::vector<Lost> lost_pipelines() = 0;

  /// Announces that this worker has ended in order. Blocks until the coordinator confirms it, the
  /// client fails, or kDeadAfterS have passed. The worker may then begin its next training. The
  /// destructor calls it, too, unless an exception is in flight.
  virtual void leave() = 0;
};

/// Connects to the coordinator at `address`, which heturun passes (HETU_COORDINATOR, config/env.h).
/// Blocks until it has answered. Throws Config for an invalid address, Comm or Timeout if the
/// coordinator does not answer or refuses, Unsupported in a build without ZeroMQ.
std::unique_ptr<GroupClient> connect_coordinator(const std::string& address,
                                                 const ClientOptions& options);

/// A worker's endpoint for its copies in other pipelines, and the key pair of the job's workers.
struct Endpoint {
  /// same transport as the coordinator's: "ipc://PATH" beside it, or "tcp://OWN IP:*"
  std::string endpoint;
  std::string public_key;
  std::string secret_key;
};

/// Returns the endpoint of a worker of the job whose coordinator has `address`. Throws as
/// connect_coordinator().
Endpoint endpoint_of_worker(const std::string& address, int worker);

}  // namespace hetu::ps
