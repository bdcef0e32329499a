// Pipelines of a module that each make their own updates, and average weights in groups after them:
// one worker's part. Whose the weights are at which moment is said here; who meets whom is the
// coordinator's, and the mean is averager.h's. hetu.torch makes one per process.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/device/device.h"
#include "executor/job/train_options.h"
#include "executor/sync/averager.h"
#include "executor/sync/membership.h"
#include "net/transport/transport.h"
#include "ps/coordinator/group_client.h"

namespace hetu {

/// Called in turns: begin_run(), then for each step computed() once its gradients stand, and
/// updated() once the owner has made new weights of them; at the end end_run(). computed() and
/// updated() on one thread.
class ModuleAverage {
 public:
  /// The workers of `links` are `pipelines` times as many stages; both must outlive it. Blocks
  /// until the coordinator has answered. Throws InvalidArgument for constants out of range and a
  /// number of pipelines that cannot average; Unsupported where pipelines may die one by one.
  ModuleAverage(const Averaging& how, comm::Transport& links, int pipelines);
  /// An average under way is given up.
  ~ModuleAverage();
  ModuleAverage(const ModuleAverage&) = delete;
  ModuleAverage& operator=(const ModuleAverage&) = delete;

  /// A run from `step` on, of about `updates` per pipeline; together the pipelines make at least as
  /// many as that comes to, and fewer than one more each. All have the same weights now, which lie
  /// in `weights` until the end of the run. Every worker calls it.
  void begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights);
  /// Gradients stand: the average of the update before is brought in, which is slept for if need
  /// be, and the weights are the owner's to change.
  void computed();
  /// They are changed, and stay as they are until the next computed(): an average is asked for;
  /// and awaited here unless it goes on beside what follows.
  void updated();
  /// The last update of this pipeline in the run, groups::kRunsOn while it is not known: in time
  /// for the next step after each updated().
  std::int64_t stop_after() const { return averager_->stop_after(); }
  /// Ends the run within a few updates, for all pipelines.
  void stop_soon() { averager_->stop_soon(); }
  /// After the last updated(): sleeps until all pipelines are there, and makes weights and `states`
  /// their means, the same bits on each. Every worker calls it, with as many states.
  void end_run(std::vector<DeviceSpan> states);

  /// The means of numbers over the pipelines; every worker of the stage calls it between runs, with
  /// as many.
  std::vector<double> mean(std::vector<double> values);
  /// Groups since the last call.
  GroupCounts take_counts() { return averager_->take_counts(); }

 private:
  comm::Transport& links_;
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
  DeviceSpan weights_;
  bool open_ = false;                    // an average is under way
  std::unique_lock<std::mutex> change_;  // held while the weights are the owner's
  int means_ = 0;
};

}  // namespace hetu
