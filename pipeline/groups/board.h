// The requests of all stages, what has been answered, and where the run stops: what every rule of
// grouping shares. A rule looks at the board and closes groups on it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "pipeline/groups/decision.h"

namespace hetu::groups {

class Board {
 public:
  /// One pipeline's place at one stage. Counts are those of the run.
  struct Seat {
    bool open = false;             ///< a request waits for its answer
    std::int64_t answered = 0;     ///< updates
    std::int64_t arrived_us = 0;   ///< of the last request
    std::int64_t released_us = 0;  ///< of the last answer
    double interval_us = 0;        ///< smoothed time between requests, waiting apart; 0: none seen
    double spread_us = 0;          ///< smoothed distance of an interval from the smoothed one
    bool seen = false;             ///< has had an answer in this run
  };

  explicit Board(const Options& options);

  const Options& options() const { return options_; }
  int stages() const { return options_.stages; }
  int pipelines() const { return options_.pipelines; }
  std::int64_t now_us() const { return now_us_; }
  const Seat& seat(int stage, int pipeline) const { return seats_[at(stage, pipeline)]; }
  bool is_alive(int pipeline) const { return alive_[pipeline]; }
  /// Alive, and with requests of this stage still to come or to be answered in this run.
  bool is_expected(int stage, int pipeline) const {
    return alive_[pipeline] && seat(stage, pipeline).answered < stop_[pipeline];
  }
  /// Its request is open and the last one of this run: nothing of its pipeline waits behind it.
  bool is_last(int stage, int pipeline) const {
    const Seat& s = seat(stage, pipeline);
    return s.open && s.answered + 1 == stop_[pipeline];
  }
  /// When its next request is expected, from what the ones before took. Needs an interval.
  std::int64_t predicted_us(int stage, int pipeline) const;
  /// The update that its next or open request is about, over the whole training.
  std::int64_t next_update(int stage, int pipeline) const {
    return done_[pipeline] + seat(stage, pipeline).answered + 1;
  }
  /// Pipelines with open requests, ascending.
  std::vector<int> pending(int stage) const;
  int expected(int stage) const;
  /// Updates that the stage's groups have had in this run.
  std::int64_t count(int stage) const { return counts_[stage]; }

  void begin_run(const std::vector<std::int64_t>& done, std::int64_t updates);
  /// Throws as Policy::arrive.
  void arrive(const Request& request, std::int64_t now_us);
  void pass_time(std::int64_t now_us) { now_us_ = std::max(now_us_, now_us); }
  void remove(int pipeline);
  void stop_soon();

  /// Closes a group of open requests; with a passive partner (AD-PSGD) of the one open request.
  void close(int stage, std::vector<int> members, Reason reason);
  void close_pair(int stage, int active, int passive);

  std::vector<Decision> take() { return std::exchange(decisions_, {}); }

 private:
  std::size_t at(int stage, int pipeline) const {
    return static_cast<std::size_t>(stage) * options_.pipelines + pipeline;
  }
  void measure(Seat& seat) const;
  void answer(int stage, int pipeline);
  void stop_if_due();
  std::vector<double> weigh(int stage, const std::vector<int>& members);
  void publish(Decision decision);

  const Options options_;
  std::vector<Seat> seats_;
  std::vector<bool> alive_;
  std::vector<std::int64_t> newest_;  // as seats_: updates in the newest weights of a copy
  std::vector<std::int64_t> counts_, serials_;  // per stage
  std::vector<std::int64_t> done_, stop_;       // per pipeline
  std::vector<std::int64_t> underway_;  // per pipeline: the earliest stop it can be told in time
  std::int64_t target_ = 0;             // N * M
  bool due_ = false;
  std::int64_t now_us_ = 0;
  std::vector<Decision> decisions_;
};

}  // namespace hetu::groups
