// The policy of partial reduce and of AD-PSGD as a pure state machine: requests and times in,
// decisions out. No clock and no I/O, so that the same code decides in the coordinator, in the
// simulator and in tests.
//
// A worker sends a request for its stage after each update. Its answer is a decision: with whom the
// updated weights are averaged, and when its pipeline stops. At most one request per stage and
// pipeline is open at a time; update u + 1 is applied only after the average of update u.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/groups/decision.h"
#include "pipeline/groups/options.h"

namespace hetu::groups {

/// Times are microseconds on any clock that never goes back. Not for several threads at once.
class Policy {
 public:
  /// Throws InvalidArgument as with_defaults does.
  explicit Policy(const Options& options);
  ~Policy();
  Policy(Policy&&) noexcept;
  Policy& operator=(Policy&&) noexcept;

  const Options& options() const;

  /// Starts a run of about `updates` (M) per pipeline: together the pipelines apply at least N * M
  /// and at most N * M + N - 1, each the same number on all its stages. `done` are the updates that
  /// each pipeline has applied before. All weights are equal now: the graph starts connected.
  /// Throws InvalidArgument if updates < 1 or a request is open.
  ///
  /// Stops are told in time for PipeDream's order with averaging underway: stage s starts forward
  /// u + n - s only when it has the answer to its request u - 1 (counts within the run), which
  /// follows from its row, where that forward stands behind UPDATE u.
  void begin_run(const std::vector<std::int64_t>& done, std::int64_t updates);
  void begin_run(std::int64_t done, std::int64_t updates);  ///< the same number for all

  /// A request. Throws InvalidArgument, and changes nothing, if the stage or the pipeline does not
  /// exist, is dead or has stopped, if its last request is still open, or the update is not the
  /// next.
  void arrive(const Request& request, std::int64_t now_us);
  /// Time has passed: call it when wakes_at_us is reached; any other time is harmless.
  void tick(std::int64_t now_us);
  /// A pipeline is dead: its open requests are dropped, nobody waits for it. Without effect if it
  /// already is. N, and so the constants, stay.
  void remove(int pipeline, std::int64_t now_us);

  /// Ends the run early: every pipeline stops as soon as all of its stages can still be told. Of
  /// no effect where the stop is known from the start (known_stop).
  void stop_soon();

  /// When tick must be called next, if nothing arrives before.
  std::optional<std::int64_t> wakes_at_us() const;
  /// Decisions since the last take, in order.
  std::vector<Decision> take();

  /// Whether a request is open.
  bool is_pending(int stage, int pipeline) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu::groups
