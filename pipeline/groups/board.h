// The state that all rules of grouping share: the requests of all stages, the answers so far, and
// the point where the run stops. A rule inspects the board and closes groups on it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "pipeline/groups/decision.h"

namespace hetu::groups {

/// Requests and answers of all stages and pipelines.
class Board {
 public:
  /// State of one pipeline at one stage. Counts are those of the run.
  struct RequestState {
    bool open = false;             ///< True if a request waits for its answer.
    std::int64_t answered = 0;     ///< Updates that have been answered.
    std::int64_t arrived_us = 0;   ///< Arrival of the last request.
    std::int64_t released_us = 0;  ///< Time of the last answer.
    /// Smoothed time between requests, without waiting; 0: not measured yet.
    double interval_us = 0;
    double spread_us = 0;  ///< Smoothed deviation of an interval from interval_us.
    bool seen = false;     ///< True if it has had an answer in this run.
  };

  /// Creates a board with all pipelines alive and no run begun.
  explicit Board(const Options& options);

  const Options& options() const { return options_; }
  int stages() const { return options_.stages; }
  int pipelines() const { return options_.pipelines; }
  std::int64_t now_us() const { return now_us_; }
  const RequestState& state(int stage, int pipeline) const { return states_[at(stage, pipeline)]; }
  bool is_alive(int pipeline) const { return alive_[pipeline]; }
  /// Returns true if the pipeline is alive and has requests of this stage that are not answered yet
  /// or still to be sent in this run.
  bool is_expected(int stage, int pipeline) const {
    return alive_[pipeline] && state(stage, pipeline).answered < stop_[pipeline];
  }
  /// Returns true if its request is open and is the last one of this run, so that no further work
  /// of its pipeline waits for the answer.
  bool is_last(int stage, int pipeline) const {
    const RequestState& s = state(stage, pipeline);
    return s.open && s.answered + 1 == stop_[pipeline];
  }
  /// Returns the time at which its next request is expected, from the intervals of earlier
  /// requests. Requires a measured interval.
  std::int64_t predicted_us(int stage, int pipeline) const;
  /// Returns the update of its next or open request, counted over the whole training.
  std::int64_t next_update(int stage, int pipeline) const {
    return done_[pipeline] + state(stage, pipeline).answered + 1;
  }
  /// Returns the pipelines with open requests, in ascending order.
  std::vector<int> pending(int stage) const;
  /// Returns the number of pipelines for which is_expected() holds.
  int expected(int stage) const;
  /// Returns the number of updates that the stage's groups have had in this run.
  std::int64_t count(int stage) const { return counts_[stage]; }

  /// Starts a run; see Policy::begin_run().
  void begin_run(const std::vector<std::int64_t>& done, std::int64_t updates);
  /// Opens a request. Throws as Policy::arrive().
  void arrive(const Request& request, std::int64_t now_us);
  /// Sets the time; a time before the present one has no effect.
  void pass_time(std::int64_t now_us) { now_us_ = std::max(now_us_, now_us); }
  /// Marks a pipeline as dead and drops its open requests.
  void remove(int pipeline);
  /// Fixes the stop of every pipeline at the earliest possible update.
  void stop_soon();

  /// Closes a group of open requests. close_pair() closes the one open request of `active` with a
  /// passive partner (AD-PSGD).
  void close(int stage, std::vector<int> members, Reason reason);
  void close_pair(int stage, int active, int passive);

  /// Returns the decisions since the last call.
  std::vector<Decision> take() { return std::exchange(decisions_, {}); }

 private:
  std::size_t at(int stage, int pipeline) const {
    return static_cast<std::size_t>(stage) * options_.pipelines + pipeline;
  }
  void measure(RequestState& state) const;
  void answer(int stage, int pipeline);
  void stop_if_due();
  std::vector<double> weigh(int stage, const std::vector<int>& members);
  void publish(Decision decision);

  const Options options_;
  std::vector<RequestState> states_;
  std::vector<bool> alive_;
  std::vector<std::int64_t> newest_;  // indexed as states_: updates in the newest weights of a copy
  std::vector<std::int64_t> counts_, serials_;  // per stage
  std::vector<std::int64_t> done_, stop_;       // per pipeline
  std::vector<std::int64_t> underway_;  // per pipeline: the earliest stop that it can learn in time
  std::int64_t target_ = 0;             // N * M updates, with the N that are alive
  bool due_ = false;
  std::int64_t now_us_ = 0;
  std::vector<Decision> decisions_;
};

}  // namespace hetu::groups
