// The policy of partial reduce and of AD-PSGD as a pure state machine: requests and times go in,
// decisions come out. It has no clock and no I/O, so that the same code decides in the coordinator,
// in the simulator and in tests.
//
// A worker sends a request for its stage after each update. Its answer is a decision: the pipelines
// with which the updated weights are averaged, and the update at which its pipeline stops. At most
// one request per stage and pipeline is open at a time. Update u + 1 is applied only after the
// average of update u.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/groups/decision.h"
#include "pipeline/groups/options.h"

namespace hetu::groups {

/// Decides which pipelines average together. Times are microseconds on any clock that never goes
/// back. Not thread-safe.
class Policy {
 public:
  /// Creates a policy. Throws InvalidArgument as with_defaults().
  explicit Policy(const Options& options);
  ~Policy();
  Policy(Policy&&) noexcept;
  Policy& operator=(Policy&&) noexcept;

  const Options& options() const;

  /// Starts a run of about `updates` (M) per pipeline. Together the pipelines apply at least N * M
  /// and at most N * M + N - 1 updates. Each pipeline applies the same number on all its stages.
  /// `done` holds the updates that each pipeline has applied before. All weights are equal at the
  /// start, so the graph starts connected. Throws InvalidArgument if updates < 1 or a request is
  /// open.
  ///
  /// Stops are announced in time for PipeDream's order with overlapped averaging. In that order
  /// stage s starts forward u + n - s only when it has the answer to its request u - 1. Counts are
  /// within the run. This follows from its row, in which that forward stands after UPDATE u.
  void begin_run(const std::vector<std::int64_t>& done, std::int64_t updates);
  /// As above, with the same `done` for all pipelines.
  void begin_run(std::int64_t done, std::int64_t updates);

  /// Takes a request. Throws InvalidArgument, without any change, if the stage or pipeline does not
  /// exist, or if the pipeline is dead or has stopped. Also throws InvalidArgument if its last
  /// request is still open, or if the update is not its next one.
  void arrive(const Request& request, std::int64_t now_us);
  /// Passes the time to the policy. Call it at the time of wakes_at_us(); calls at other times are
  /// harmless.
  void tick(std::int64_t now_us);
  /// Removes a dead pipeline: its open requests are dropped, and other pipelines stop waiting for
  /// it. No effect if it is removed already. N, and with it the constants, stay.
  void remove(int pipeline, std::int64_t now_us);

  /// Ends the run early: every pipeline stops at the earliest update that all of its stages can
  /// still learn in time. No effect if the stop is known from the start (known_stop).
  void stop_soon();

  /// Returns the time at which tick() must be called next if no request arrives before.
  std::optional<std::int64_t> wakes_at_us() const;
  /// Returns the decisions since the last call, in order.
  std::vector<Decision> take();

  /// Returns true if a request is open.
  bool is_pending(int stage, int pipeline) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu::groups
