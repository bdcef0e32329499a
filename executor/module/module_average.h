// One worker's part in averaging the weights of a module's pipelines, each of which makes its own
// updates. This file defines when the weights belong to the owner and when to the averager. The
// coordinator forms the groups, and averager.h computes the mean. hetu.torch makes one object per
// process.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/device/device.h"
#include "executor/job/job_options.h"
#include "executor/sync/averager.h"
#include "executor/sync/membership.h"
#include "net/transport/transport.h"
#include "ps/coordinator/group_client.h"

namespace hetu {

/// Call the functions in this order: begin_run(); for each step computed() when its gradients are
/// ready and updated() when the owner has changed the weights; at the end end_run(). Call
/// computed() and updated() on the same thread.
class ModuleAverage {
 public:
  /// The number of workers in `links` is `pipelines` times the number of stages. `links` and the
  /// functions of `how` must outlive the object. Blocks until the coordinator has answered. Throws
  /// InvalidArgument for constants out of range and for a number of pipelines that cannot average.
  /// Throws Unsupported if pipelines may be lost one by one.
  ModuleAverage(const Averaging& how, comm::Transport& links, int pipelines);
  /// Cancels an average in progress.
  ~ModuleAverage();
  ModuleAverage(const ModuleAverage&) = delete;
  ModuleAverage& operator=(const ModuleAverage&) = delete;

  /// Begins a run from `step` on, of about `updates` updates per pipeline. Together the pipelines
  /// make at least `updates` times their number, and fewer than one more each. All pipelines must
  /// have the same weights, which stay in `weights` until the end of the run. Every worker calls
  /// it.
  void begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights);
  /// Call when gradients are ready. Waits for the average of the previous update and applies it.
  /// Afterwards the owner may change the weights.
  void computed();
  /// Call when the weights have been changed. They must stay unchanged until the next computed().
  /// Requests an average, and waits for it unless averages overlap with compute.
  void updated();
  /// Returns the last update of this pipeline in the run, or groups::kRunsOn while it is not known.
  /// After each updated() the value is current in time for the next step.
  std::int64_t stop_after() const { return averager_->stop_after(); }
  /// Ends the run of all pipelines within a few updates.
  void stop_soon() { averager_->stop_soon(); }
  /// Call after the last updated(). Waits for all pipelines, and replaces weights and `states` by
  /// their means, with the same bits on each. Every worker calls it, with the same number of
  /// states.
  void end_run(std::vector<DeviceSpan> states);

  /// Returns the means of numbers over the pipelines. Every worker of the stage calls it between
  /// runs, with the same number of values.
  std::vector<double> mean(std::vector<double> values);
  /// Returns the counts of groups since the last call.
  GroupCounts take_counts() { return averager_->take_counts(); }

 private:
  comm::Transport& links_;
  std::unique_ptr<ps::GroupClient> client_;
  std::unique_ptr<Membership> members_;
  std::unique_ptr<Averager> averager_;
  DeviceSpan weights_;
  bool open_ = false;                    // an average is in progress
  std::unique_lock<std::mutex> change_;  // held while the owner may change the weights
  int means_ = 0;
};

}  // namespace hetu
