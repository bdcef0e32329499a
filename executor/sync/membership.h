// The pipelines that hold copies of a worker's stage: which of them live, and what the living ones
// do together. Used by the averager, by training and by rehearsals. Independent of weights.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "net/transport/collective.h"
#include "net/transport/zmq.h"
#include "ps/coordinator/group_client.h"

namespace hetu {

/// The pipelines of a job as seen by one worker.
class Membership {
 public:
  /// The worker's stage and pipeline, and the workers that hold the stage, one per pipeline. If
  /// pipelines may die one by one, `mesh` is the transport that links the copies of the stage; else
  /// it is null.
  struct Position {
    int stage = 0;
    int pipeline = 0;
    comm::Group workers;
    comm::Mesh* mesh = nullptr;
  };

  /// Transport and client must outlive the object. The client must have the stage and pipeline of
  /// `position`.
  Membership(comm::Transport& transport, ps::GroupClient& client, Position position);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  const Position& position() const { return position_; }
  comm::Transport& transport() const { return transport_; }
  /// Returns the workers of these pipelines that hold the stage.
  comm::Group workers_of(const std::vector<int>& pipelines) const;

  /// Counts the runs of the training, which errors name.
  void begin_run() { ++runs_; }
  std::int64_t runs() const { return runs_; }

  // The following functions are for jobs whose pipelines may die one by one (Position::mesh). Any
  // thread may call them.

  bool may_lose() const { return position_.mesh != nullptr; }
  /// Registers sums that must fail when a pipeline leaves, now or later. Its sums end before its
  /// links do, so that sums started after the links are broken fail, too. `sums` must exist until
  /// unfollow().
  void follow(comm::Reducer& sums);
  void unfollow(comm::Reducer& sums);
  /// Returns true if one of these pipelines is lost, so that an operation with all of them has
  /// failed.
  bool is_broken(const std::vector<int>& pipelines) const;
  /// Returns true if all pipelines before this one are known to be lost.
  bool is_first() const;
  /// Returns the pipelines that are known to have left the job.
  std::vector<ps::Lost> losses() const { return client_.lost_pipelines(); }

  // The following functions are for the main thread. Every worker of every pipeline calls the same
  // blocking functions in the same order, and each learns of the same members.

  /// Returns the pipelines that took part in the last common step, ascending; before the first step
  /// all.
  const std::vector<int>& living() const { return living_; }
  /// Waits until all living pipelines have called it.
  ps::Rendezvous rendezvous(bool ok, bool flag);
  /// Returns the number of rendezvous so far, which is the same on every worker of the job.
  std::int64_t rendezvous_count() const { return rendezvous_; }
  /// Runs `work` in all living pipelines. If one dies during it, the remaining ones run it again.
  /// `name` is for error messages.
  void together(const std::string& name, const std::function<void()>& work);
  /// Returns true if any worker raises `flag`. Collective.
  bool any_raises(bool flag) { return rendezvous(true, flag).any_flag; }
  /// Exchanges texts with the copies of this worker and returns them by pipeline; at most 16 MiB
  /// each.
  std::map<int, std::string> exchange(const std::string& mine);
  /// Runs `work` in the workers of the lowest living pipeline. If that pipeline dies, the next one
  /// runs it.
  void in_one_pipeline(const std::function<void()>& work);

 private:
  void lose(int pipeline);

  comm::Transport& transport_;
  ps::GroupClient& client_;
  const Position position_;
  std::int64_t runs_ = 0;
  std::vector<int> living_;
  std::int64_t rendezvous_ = 0;

  mutable std::mutex mutex_;  // guards the members below; held while reducers are notified
  std::vector<bool> lost_;    // by pipeline
  std::vector<comm::Reducer*> reducers_;
};

}  // namespace hetu
