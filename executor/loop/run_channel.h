// The messages between workers about a run that has no flush at each step. Workers send their
// results to the chief, which decides how long to continue. No worker's compute waits for these
// messages.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/transport/collective.h"

namespace hetu {

/// One worker's end of the channel.
class RunChannel {
 public:
  /// Reports have `values` numbers each. Collective: every worker of `group` constructs its own
  /// object. The first worker is the chief, which receives the reports and decides how long to
  /// continue.
  RunChannel(comm::Transport& transport, comm::Group group, std::size_t values);

  bool is_chief() const { return transport_.worker() == group_.front(); }

  /// Bounds on the length of a run. It has at most `steps` steps. The first `least` steps are
  /// granted at once. Each further grant adds `lead` steps, a multiple of the granularity of the
  /// plan's body.
  struct Limits {
    int steps = 0;
    int least = 0;
    int lead = 1;
  };
  /// Begins a run whose first step is `first_step` of the training. Arguments must be the same on
  /// every worker.
  void begin(int first_step, const Limits& limits);

  /// Returns the number of steps that are certain to run. is_final() returns true if no more will
  /// be granted.
  int granted() const { return granted_; }
  bool is_final() const { return final_; }
  /// Chief only: grants more steps, or ends the run with the steps granted so far.
  void grant(bool end);
  /// Chief only: grants steps up to `steps`, and ends the run there if `end`.
  void grant_to(int steps, bool end);
  /// Other workers: receives the grants that the chief has sent; with `wait`, blocks until it has
  /// granted more.
  void hear(bool wait);

  /// Reports that this worker has done its part of `step`, counted from 0 in the run. Call it once
  /// per step, in ascending order.
  void report(int step, std::vector<double> values);
  /// Chief only: returns the sums over all workers, added in their order, for the next step that
  /// all workers have reported. Returns nullopt if there is none yet. With `wait`, blocks for
  /// reports, and returns nullopt only after the last granted step.
  std::optional<std::vector<double>> next_sums(bool wait);
  /// Blocks until everything that this worker has sent is delivered.
  void finish();

 private:
  struct Outgoing {
    std::unique_ptr<comm::Request> request;
    std::vector<double> values;
  };
  struct Incoming {  // chief only, per worker of the group
    std::unique_ptr<comm::Request> request;
    std::vector<double> values;
    int posted = 0;  // steps for which a receive was posted
    std::deque<std::vector<double>> reports;
  };

  void post_grant();
  void send(int worker, int kind, std::vector<double> values);
  bool take_report(std::size_t member, bool wait);

  comm::Transport& transport_;
  comm::Group group_;
  std::size_t values_;
  int first_step_ = 0;
  Limits limits_;
  int granted_ = 0;
  bool final_ = true;
  int summed_ = 0;
  std::deque<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<double> grant_;  // granted steps, and 1 if the grant is final
  std::unique_ptr<comm::Request> grant_request_;
};

}  // namespace hetu
