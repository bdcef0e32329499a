// Averaging of a stage's weights with its copies in other pipelines. The averager requests a group
// from the coordinator and computes the mean on its own thread, while compute goes on. Used by the
// runners of training and of `hetu rehearse`. membership.h knows which pipelines exist.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "executor/device/device.h"
#include "executor/direct/direct_means.h"
#include "executor/sync/membership.h"
#include "net/transport/collective.h"
#include "ps/coordinator/group_client.h"

namespace hetu {

/// A member's weights before and after an average, for tests and logs.
struct Averaged {
  const ps::Answer& group;
  const float* before;  ///< weights that this worker contributed
  const float* after;   ///< the mean, with the same bits on every member
  std::int64_t elements;
};

/// Settings of an averager.
struct AverageOptions {
  groups::Options policy;  ///< policy of the client's coordinator
  /// Waits for the answer and the mean only before the next update, instead of at once.
  bool overlap = true;
  std::int64_t bucket_bytes = 8 << 20;
  /// Time added to each mean of two or more members: the simulated network of a rehearsal.
  std::int64_t network_ns = 0;
  /// Called for each group of two or more members, on the averager's thread.
  std::function<void(const Averaged&)> observe = {};
};

/// Returns the options for training. With P = 1 every pipeline waits for the mean, whatever
/// `overlap` says.
AverageOptions average_options(const groups::Options& policy, bool overlap);

/// The number of averages, counted by group size.
struct GroupCounts {
  std::int64_t groups = 0;
  std::int64_t members = 0;
  std::vector<std::int64_t> by_size;  ///< index: number of members
  /// Returns the mean number of members per group.
  double mean() const {
    return groups > 0 ? static_cast<double>(members) / static_cast<double>(groups) : 0;
  }
};

/// Averages the weights of a worker's stage.
class Averager {
 public:
  /// Members and client must outlive the object. The client must be for the members' stage and
  /// pipeline.
  Averager(Membership& members, ps::GroupClient& client, AverageOptions options);
  /// Abandons averages that are still running.
  ~Averager();
  Averager(const Averager&) = delete;
  Averager& operator=(const Averager&) = delete;

  /// Makes groups average with `means`, between memories of devices. Call it before the first run.
  /// Not for AD-PSGD, whose partners give weights at any time, nor where pipelines may die one by
  /// one.
  void go_direct(std::unique_ptr<DirectMeans> means);

  /// Sets the number of updates that this pipeline has applied so far. Call it between runs.
  void set_done(std::int64_t updates);
  /// Starts a run at `step` with about `updates` updates per pipeline. `weights` are the current
  /// weights.
  void begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights);

  /// Ends the run early for all pipelines. Each pipeline stops at an update that all its stages can
  /// still learn of in time.
  void stop_soon();

  /// Starts the average after one more update of this pipeline: requests a group and averages while
  /// the caller goes on. The weights must not change until end().
  void begin();
  /// Waits until the average is done and returns comm::now_ns() of that moment. Throws Timeout and
  /// Comm with stage and update, and the error of the averager's thread.
  std::int64_t end();

  /// Runs begin(), end() and bring_into(), for averages that don't overlap. The update has just
  /// made `weights`, and no micro-batch has used them; the mean replaces them. Returns as end().
  std::int64_t average_now(const DeviceSpan& weights);

  /// Returns a lock to hold while weights change, because a passive partner of AD-PSGD may read
  /// them at any time.
  std::unique_lock<std::mutex> change() { return std::unique_lock(weights_mutex_); }
  /// Makes `weights` the newest weights, which are a copy of the previous ones, and writes the
  /// results of averages since then into them. Call it while holding change().
  void bring_into(const DeviceSpan& weights);

  /// Returns the updates of this pipeline in this run. Each has begun an average.
  std::int64_t updates() const { return updates_; }
  /// Returns the updates of this run whose average is done.
  std::int64_t answered() const { return answered_; }
  /// Returns the last update of this pipeline in this run, counted within the run, or
  /// groups::kRunsOn while it isn't known. As of the last end().
  std::int64_t stop_after() const { return stop_after_; }
  /// Returns the updates of all pipelines in this run, as far as this worker knows.
  std::int64_t updates_of_all() const;

  /// Ends a run after every pipeline has stopped. Waits until no partner needs these weights any
  /// more, then writes the last averages into the weights. Collective over the workers of the
  /// stage.
  void end_run();
  /// Sets every element to its mean over all pipelines, added in their order, with the same bits on
  /// each. Collective over the workers of the stage, with the same number of spans. Blocks. Where
  /// pipelines may die, the mean is over those that live. It then takes as much memory again as the
  /// spans, which MemoryPlan::averages includes.
  void consensus(const std::vector<DeviceSpan>& spans);

  /// Returns the membership of the pipelines that average.
  const Membership& members() const { return members_; }
  /// Returns the counts of groups since the last call.
  GroupCounts take_counts();
  /// Returns true if averages overlap with compute (AverageOptions::overlap).
  bool overlaps() const { return options_.overlap; }

 private:
  struct Span {  // in host memory
    float* data = nullptr;
    std::int64_t elements = 0;
  };

  void serve();
  void meet(const ps::Answer& group, bool invited);
  void mean_over(const comm::Group& group, const std::vector<Span>& spans, int kind,
                 std::int64_t number, comm::WaitPurpose what, std::optional<double> weight = {});
  void meet_direct(const ps::Answer& group, std::optional<double> weight, comm::WaitPurpose what);
  void snapshot(float* to);
  void note(const ps::Answer& group);
  std::string doing() const;

  Membership& members_;
  comm::Reducer reducer_;
  ps::GroupClient& client_;
  const AverageOptions options_;

  std::int64_t done_before_ = 0;  // updates of this pipeline before this run
  std::int64_t updates_ = 0, answered_ = 0;
  std::int64_t stop_after_ = groups::kRunsOn;
  bool stops_soon_ = false;  // stop_soon() was called in this run

  std::mutex weights_mutex_;  // guards the weights, and the results to write into them
  DeviceSpan weights_;
  std::int64_t elements_ = 0;  // number of weights; constant within a run
  bool replaced_ = false;      // mean_ replaces the weights
  bool moved_ = false;         // shift_ is added to the weights
  std::vector<float> mean_;    // used by the thread; by the main thread between end() and begin()
  std::vector<float> shift_, given_;
  std::unique_ptr<DirectMeans> direct_;  // null: means are computed in host memory
  Device::Memory mean_there_;            // device memory for the mean, used instead of mean_
  Queue::Mark updated_;                  // reached once the weights are written

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool rung_ = false;     // the client has news
  bool serving_ = false;  // the thread is busy
  bool stop_ = false;
  bool open_ = false;  // an average has begun and isn't done
  std::int64_t done_ns_ = 0;
  std::optional<ps::Answer> answer_;  // answer of the average that is done
  std::exception_ptr error_;
  std::vector<std::int64_t> known_;  // updates of each pipeline over the whole training
  std::vector<std::int64_t> known_before_;
  GroupCounts counts_;
  std::thread thread_;
};

}  // namespace hetu
