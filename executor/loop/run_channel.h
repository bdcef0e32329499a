// What workers say beside a run that is not flushed at each step: results go to the chief, which
// tells the others how long to go on. Nobody's compute waits for either.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "net/transport/collective.h"

namespace hetu {

class RunChannel {
 public:
  /// Reports have `values` numbers each. Every worker of `group` makes its own; its first is the
  /// chief, which hears the reports and decides how long to go on.
  RunChannel(comm::Transport& transport, comm::Group group, std::size_t values);

  bool is_chief() const { return transport_.worker() == group_.front(); }

  /// How far a run may go: `steps` at most; the first `least` are granted at once, then `lead` more
  /// (a multiple of the granularity of the plan's body) each time.
  struct Limits {
    int steps = 0;
    int least = 0;
    int lead = 1;
  };
  /// A run whose first step is `first_step` of the training; the same on every worker.
  void begin(int first_step, const Limits& limits);

  /// Steps that are sure to run, and whether none will come after them.
  int granted() const { return granted_; }
  bool is_final() const { return final_; }
  /// Chief: grants more, or ends the run with what is granted.
  void grant(bool end);
  /// Chief: grants up to `steps`, and ends the run there if `end`.
  void grant_to(int steps, bool end);
  /// Other workers: takes in what the chief has granted since; `wait`: until it has granted more.
  void hear(bool wait);

  /// This worker has done its part of `step` (of the run, from 0; each once, ascending).
  void report(int step, std::vector<double> values);
  /// Chief: the sums over all workers, added in their order, of the next step that all have
  /// reported; nothing if there is none yet, or with `wait` only if the run is over.
  std::optional<std::vector<double>> next_sums(bool wait);
  /// Sleeps until what this worker has sent is gone.
  void finish();

 private:
  struct Outgoing {
    std::unique_ptr<comm::Request> request;
    std::vector<double> values;
  };
  struct Incoming {  // chief, per worker of the group
    std::unique_ptr<comm::Request> request;
    std::vector<double> values;
    int posted = 0;  // the step of the last receive + 1
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
  std::vector<double> grant_;  // steps, and 1 if none come after them
  std::unique_ptr<comm::Request> grant_request_;
};

}  // namespace hetu
