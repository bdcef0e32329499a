// The progress of a plan: what each position waits for, and an order in which everything can run.
// The verifier and the simulator share it, so that the proved plan is the timed plan.
//
// These are the rules of progress:
// - Each row runs in order.
// - A receive takes its own message, whatever other messages are in transit.
// - A send needs a free slot of its channel (an ordered pair of workers). With K slots, the n-th
//   send waits for the (n-K)-th receive. With 0 slots, sender and receiver meet.
// - A reduction is posted without waiting. It is done when all members have posted it and each of
//   them has finished the reductions that it posted before.
// - An update and K-FAC's preconditioning wait for all reductions that their worker has posted. An
//   inversion waits for those of factors.
// - The instruction after a reduction of scalars waits for that reduction.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/ir/plan_index.h"

namespace hetu {

/// Number of send slots for unbounded channels, on which a send never waits.
inline constexpr int kUnboundedSlots = -1;

/// A reduction of the plan: the positions that post it, one per worker concerned. If several
/// pipelines run the plan, each position stands for one member in each pipeline.
struct Collective {
  std::vector<int> posts;
};

/// Runs a plan without executing it, and reports where it stops.
class Progress {
 public:
  /// Receives the instructions and collectives that run, each after everything that it waits for.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// Called when `count` instructions from `position` run as one: 2 for a pair that runs as one,
    /// otherwise 1.
    virtual void on_run(int pipeline, int position, int count) = 0;
    /// Called when a collective is done.
    virtual void on_collective(int collective) = 0;
  };

  /// A thing that a position waits for in addition to its turn in the row. `done` is a position, or
  /// index.size() + a collective. `named` is the instruction that an error message names. The two
  /// differ with 0 slots: a sender waits until the receiver has reached the receive, so `done` is
  /// the position before the receive.
  struct Wait {
    int done = -1;
    int named = -1;
  };

  /// The same thing as an entry of a precomputed table, for loops over millions of positions.
  struct Need {
    std::int32_t done = -1;
    std::int32_t worker = -1;  ///< Worker that does it in its row; -1 for a collective.
  };
  struct Needs {
    const Need* first;
    const Need* last;
    const Need* begin() const { return first; }
    const Need* end() const { return last; }
  };

  /// Prepares a plan for `pipelines` pipelines. `send_slots` is at least 0, or kUnboundedSlots. The
  /// index must outlive this object. Throws InvalidArgument for other values.
  Progress(const PlanIndex& index, int send_slots, int pipelines);

  /// Calls visit(Wait) for each thing that the position waits for.
  template <class Visit>
  void waits(int position, Visit&& visit) const;

  /// Returns the things that the position waits for, from the table.
  Needs needs(int position) const {
    return {needs_.data() + needs_begin_[position], needs_.data() + needs_begin_[position + 1]};
  }

  /// Runs all rows as far as they go. Returns true if everything ran.
  bool run(Listener& listener);

  const PlanIndex& index() const { return index_; }
  int pipelines() const { return pipelines_; }
  /// Returns all collectives; their indices are the collective numbers used here.
  const std::vector<Collective>& collectives() const { return collectives_; }

  /// Returns the collective that the position posts, or the last collective that it waits for; -1
  /// if there is no collective.
  int collective_at(int position) const;

  /// Returns, after run(), the position at which a row has stopped, or its row_end if it has
  /// finished.
  int stopped_at(int pipeline, int worker) const {
    return next_[pipeline * index_.workers() + worker];
  }
  /// Returns, after run(), the first collective that the worker has not finished, or -1.
  int collective_ahead(int worker) const;
  /// Returns, after run(), true if a thing (see Wait::done) is done in the pipeline.
  bool is_done(int pipeline, int done) const { return state_[cell(pipeline, done)] == kDone; }

 private:
  // Values of state_ for a thing that is not done and not waited for, and for a thing that is done.
  // Other values are the row that waits for it, the head of a list in next_waiter_.
  static constexpr std::int32_t kOpen = -1, kDone = -2;

  void find_collectives();
  void find_slots(int send_slots);
  void find_needs();
  int scalars_before(int position) const;
  std::size_t cell(int pipeline, int done) const {
    return pipeline * (static_cast<std::size_t>(index_.size()) + collectives_.size()) + done;
  }
  void start();
  bool advance(int row, Listener& listener);
  int blocker(int pipeline, int position, int count) const;
  void finish(int pipeline, int done);
  void post(int position, Listener& listener);

  const PlanIndex& index_;
  const int pipelines_;
  const bool rendezvous_;
  std::vector<Collective> collectives_;
  std::vector<std::vector<int>> queues_;  // per worker: its collectives in the order of posting
  // per position of a send: the receive that it waits for, or -1
  std::vector<std::int32_t> slot_wait_;
  std::vector<std::int32_t> collective_of_;  // parallel to index_.step_level()
  std::vector<std::int32_t> needs_begin_;    // first entry in needs_ per position, and the end
  std::vector<Need> needs_;
  // State of a run. A row is pipeline * workers + worker.
  std::vector<int> next_;             // per row: the next position to run
  std::vector<int> collective_left_;  // per collective: posts and predecessors that are still open
  std::vector<std::size_t> head_;     // per worker: number of finished collectives of its queue
  std::vector<std::int32_t> state_;   // per pipeline and thing (a position or a collective)
  std::vector<std::int32_t> next_waiter_;  // per row: another row that waits for the same thing
  // Rows that can be tried again.
  std::vector<int> ready_;
};

template <class Visit>
void Progress::waits(int position, Visit&& visit) const {
  const Instr& instr = index_.at(position);
  const auto collective = [&](int c) {
    if (c >= 0) visit(Wait{index_.size() + c, index_.size() + c});
  };
  collective(scalars_before(position));
  if (is_collective(instr.kind)) return;
  if (awaits_sums(instr.kind)) {
    collective(collective_at(position));
    return;
  }
  index_.graph().producers(instr, [&](const Producer& p) {
    const int made = index_.find(p.instr);
    if (made >= 0) visit(Wait{made, made});
  });
  if (slot_wait_.empty() || slot_wait_[position] < 0) return;
  const int receive = slot_wait_[position];
  if (rendezvous_) collective(scalars_before(receive));
  if (!rendezvous_)
    visit(Wait{receive, receive});
  else if (receive > index_.row_begin(index_.worker_of(receive)))
    visit(Wait{receive - 1, receive});
}

}  // namespace hetu
