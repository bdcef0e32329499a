// Who is there: the pipelines that hold copies of a worker's stage, which of them live, and what
// those that live do together. Read by the averager, by training and by rehearsals; knows no
// weight.
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

class Membership {
 public:
  /// Who stands where: `workers` hold the stage, one per pipeline; this one's is `pipeline`. Where
  /// pipelines may die one by one, `mesh` is the transport and links the copies of the stage.
  struct Place {
    int stage = 0;
    int pipeline = 0;
    comm::Group workers;
    comm::Mesh* mesh = nullptr;
  };

  /// Transport and client must outlive it. The client's stage and pipeline are the place's.
  Membership(comm::Transport& transport, ps::GroupClient& client, Place place);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  const Place& place() const { return place_; }
  comm::Transport& transport() const { return transport_; }
  comm::Group workers_of(const std::vector<int>& pipelines) const;

  /// Runs of the training begun so far: names the moment in errors.
  void begin_run() { ++runs_; }
  std::int64_t runs() const { return runs_; }

  // Where pipelines may die one by one (Place::mesh). Any thread may call these.

  bool may_lose() const { return place_.mesh != nullptr; }
  /// Sums with a pipeline that leaves, now and later, end before its links do, so that what starts
  /// after those are broken fails, too. Until unfollow, which `sums` must see.
  void follow(comm::Reducer& sums);
  void unfollow(comm::Reducer& sums);
  /// Whether one of them is lost, which is why something with all of them has failed.
  bool is_broken(const std::vector<int>& pipelines) const;
  /// Whether all pipelines before this one are lost, as far as is known now.
  bool is_first() const;
  /// Pipelines that have left the job, as far as is known now.
  std::vector<ps::Lost> losses() const { return client_.lost_pipelines(); }

  // The same, for the main thread. Every worker of every pipeline calls the same of the functions
  // that block, in the same order; each hears of the same members.

  /// Pipelines that took part in the last step together, ascending; before the first one all.
  const std::vector<int>& living() const { return living_; }
  /// Blocks until all that live have come.
  ps::Rendezvous rendezvous(bool ok, bool flag);
  /// Of those so far, the same on every worker of the job.
  std::int64_t rendezvous_count() const { return rendezvous_; }
  /// Does `work` in all that live: again, with those that are left, if one dies in it. `name` is
  /// for errors.
  void together(const std::string& name, const std::function<void()>& work);
  /// Whether any worker raises `flag`.
  bool any_raises(bool flag) { return rendezvous(true, flag).any_flag; }
  /// The texts of this worker's copies, at most 16 MiB each, by pipeline.
  std::map<int, std::string> exchange(const std::string& mine);
  /// Does `work` in the workers of one living pipeline, the lowest: of another one if that dies.
  void in_one_pipeline(const std::function<void()>& work);

 private:
  void lose(int pipeline);

  comm::Transport& transport_;
  ps::GroupClient& client_;
  const Place place_;
  std::int64_t runs_ = 0;
  std::vector<int> living_;
  std::int64_t rendezvous_ = 0;

  mutable std::mutex mutex_;  // guards what follows; held while a reducer is told
  std::vector<bool> lost_;    // by pipeline
  std::vector<comm::Reducer*> reducers_;
};

}  // namespace hetu
