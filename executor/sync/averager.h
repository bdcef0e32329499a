// A worker's part in averaging the weights of its stage with other pipelines' copies of it: it asks
// with whom, and carries the mean out beside compute, on a thread of its own. Driven by the runners
// of training and of `hetu rehearse`; who is there is membership.h's.
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

/// What a member of a group gives and gets: for tests and logs.
struct Averaged {
  const ps::Answer& group;
  const float* before;  ///< what this worker gave
  const float* after;   ///< the mean, the same bits on every member
  std::int64_t elements;
};

struct AverageOptions {
  groups::Options policy;  ///< what the client's coordinator decides by
  /// The answer and the mean are awaited before the next update, not at once.
  bool overlap = true;
  std::int64_t bucket_bytes = 8 << 20;
  /// What a mean of two and more takes besides: the network of a rehearsal.
  std::int64_t network_ns = 0;
  /// Called for each group of two and more, on the averager's thread.
  std::function<void(const Averaged&)> observe = {};
};

/// As a training has it: with P = 1 nobody goes on before the mean, whatever `overlap` says.
AverageOptions average_options(const groups::Options& policy, bool overlap);

/// How many pipelines met, counted by group size.
struct GroupCounts {
  std::int64_t groups = 0;
  std::int64_t members = 0;
  std::vector<std::int64_t> by_size;  ///< index: members of a group
  double mean() const {
    return groups > 0 ? static_cast<double>(members) / static_cast<double>(groups) : 0;
  }
};

class Averager {
 public:
  /// Members and client must outlive it, and the client's place is the members'.
  Averager(Membership& members, ps::GroupClient& client, AverageOptions options);
  /// Averages still under way are given up.
  ~Averager();
  Averager(const Averager&) = delete;
  Averager& operator=(const Averager&) = delete;

  /// Groups average from here on by `means`, between memories of devices; before the first run. Not
  /// of AD-PSGD, whose partners give weights at any time, nor where pipelines may die one by one.
  void go_direct(std::unique_ptr<DirectMeans> means);

  /// Updates that this pipeline has applied so far; between runs.
  void set_done(std::int64_t updates);
  /// A run from `step` on, of about `updates` updates per pipeline, whose weights are now
  /// `weights`.
  void begin_run(std::int64_t step, std::int64_t updates, const DeviceSpan& weights);

  /// Ends the run early, for all pipelines, at stops of which all of their stages can be told.
  void stop_soon();

  /// This pipeline has applied one more update: asks for a group and averages, beside what the
  /// caller does next. The weights must stay as they are until end().
  void begin();
  /// Sleeps until the average is done; returns comm::now_ns() of that moment. Throws Timeout and
  /// Comm with the stage and the update; what the averager's thread met.
  std::int64_t end();

  /// Both at once, for averages that do not overlap: no micro-batch has used `weights`, which the
  /// update has just made; the mean takes their place. Returns as end().
  std::int64_t average_now(const DeviceSpan& weights);

  /// Keep this while weights change: a passive partner of AD-PSGD is asked at any time.
  std::unique_lock<std::mutex> change() { return std::unique_lock(weights_mutex_); }
  /// Within change(): the newest weights are `weights` from here on, a copy of those before. What
  /// averages have changed since is brought into them.
  void bring_into(const DeviceSpan& weights);

  /// Updates of this pipeline in this run: begun averages.
  std::int64_t updates() const { return updates_; }
  /// Those of them whose average is done.
  std::int64_t answered() const { return answered_; }
  /// The last update of this pipeline in this run, groups::kRunsOn while it is not known; counted
  /// in the run. As of the last end().
  std::int64_t stop_after() const { return stop_after_; }
  /// Updates of all pipelines together in this run, as far as this worker has heard.
  std::int64_t updates_of_all() const;

  /// Ends a run: every pipeline has stopped. Sleeps until no partner asks any more, then brings the
  /// last averages into the weights. Every worker of the stage calls it.
  void end_run();
  /// Every element becomes its mean over all pipelines, added in their order; the same bits on
  /// each. Every worker of the stage calls it, with as many spans. Blocks. Where pipelines may die
  /// it is the mean of those that live, and takes as much memory again as the spans, which
  /// MemoryPlan::averages counts.
  void consensus(const std::vector<DeviceSpan>& spans);

  /// Whose weights these are averaged with.
  const Membership& members() const { return members_; }
  /// Of the groups since the last call.
  GroupCounts take_counts();
  bool overlaps() const { return options_.overlap; }

 private:
  struct Span {  // in host memory
    float* data = nullptr;
    std::int64_t elements = 0;
  };

  void serve();
  void meet(const ps::Answer& group, bool invited);
  void mean_over(const comm::Group& group, const std::vector<Span>& spans, int kind,
                 std::int64_t number, comm::What what, std::optional<double> weight = {});
  void meet_direct(const ps::Answer& group, std::optional<double> weight, comm::What what);
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
  bool stops_soon_ = false;  // this run

  std::mutex weights_mutex_;  // guards the weights, and what is to be brought into them
  DeviceSpan weights_;
  std::int64_t elements_ = 0;  // of them; the same all through a run
  bool replaced_ = false;      // mean_ takes the place of the weights
  bool moved_ = false;         // shift_ is added to them
  std::vector<float> mean_;    // of the thread; the main thread's between end() and begin()
  std::vector<float> shift_, given_;
  std::unique_ptr<DirectMeans> direct_;  // null: means are made in host memory
  Device::Memory mean_there_;            // in mean_'s place
  Queue::Mark updated_;                  // before it the weights are not there

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool rung_ = false;
  bool serving_ = false;  // the thread does something
  bool stop_ = false;
  bool open_ = false;  // begun and not done
  std::int64_t done_ns_ = 0;
  std::optional<ps::Answer> answer_;  // of the average that is done
  std::exception_ptr error_;
  std::vector<std::int64_t> known_;  // updates of each pipeline over the training
  std::vector<std::int64_t> known_before_;
  GroupCounts counts_;
  std::thread thread_;
};

}  // namespace hetu
