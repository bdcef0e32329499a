// How a plan advances: what each position waits for, and an order in which everything can run.
// Verifier and simulator share it, so that what is proved is what is timed.
//
// Rows run in order. A receive takes its own message, whatever else is underway. A send needs a
// free slot of its channel (ordered pair of workers): with K slots the n-th send waits for the
// (n-K)-th receive; with 0 slots sender and receiver meet. A reduction is posted without waiting;
// it is done when all members have posted it and each has finished the ones it posted before; an
// update and K-FAC's preconditioning wait for all reductions that their worker has posted, an
// inversion for those of factors, and whatever stands behind a reduction of scalars for that one.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/ir/plan_index.h"

namespace hetu {

/// As many messages underway per ordered pair of workers as the plan sends.
inline constexpr int kUnboundedSlots = -1;

/// One reduction of the plan: the positions that post it, one per worker concerned. With several
/// pipelines side by side each position stands for one member in each of them.
struct Collective {
  std::vector<int> posts;
};

class Progress {
 public:
  /// Hears what runs, in an order in which everything waited for came before.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// `count` instructions from `position` run as one (2 for an atomic pair, else 1).
    virtual void on_run(int pipeline, int position, int count) = 0;
    virtual void on_collective(int collective) = 0;
  };

  /// What a position waits for besides its place in the row: `done` is a position, or a collective
  /// + index.size(). `named` is what a message calls it (with 0 slots a sender waits until the
  /// receive is reached, which is the position before it).
  struct Wait {
    int done = -1;
    int named = -1;
  };

  /// The same as it stands in a table made once, for loops over millions of positions.
  struct Need {
    std::int32_t done = -1;
    std::int32_t worker = -1;  ///< whose row does it; -1: a collective
  };
  struct Needs {
    const Need* first;
    const Need* last;
    const Need* begin() const { return first; }
    const Need* end() const { return last; }
  };

  /// `send_slots` >= 0 or kUnboundedSlots. The index must outlive it.
  Progress(const PlanIndex& index, int send_slots, int pipelines);

  template <class Visit>
  void waits(int position, Visit&& visit) const;

  Needs needs(int position) const {
    return {needs_.data() + needs_begin_[position], needs_.data() + needs_begin_[position + 1]};
  }

  /// Runs all rows as far as they go; true if everything ran.
  bool run(Listener& listener);

  const PlanIndex& index() const { return index_; }
  int pipelines() const { return pipelines_; }
  const std::vector<Collective>& collectives() const { return collectives_; }

  /// The collective that the position posts, or that what stands there awaits; -1 if none.
  int collective_at(int position) const;

  /// After run: the position at which a row stands, its row_end if it finished.
  int stopped_at(int pipeline, int worker) const {
    return next_[pipeline * index_.workers() + worker];
  }
  /// After run: the first collective that the worker has not finished, or -1.
  int collective_ahead(int worker) const;
  bool is_done(int pipeline, int done) const { return state_[cell(pipeline, done)] == kDone; }

 private:
  // What state_ holds of something to be done: a row that waits for it, or one of these.
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
  std::vector<std::vector<int>> queues_;     // per worker, collectives in the order of their posts
  std::vector<std::int32_t> slot_wait_;      // per position of a send: the receive it waits for
  std::vector<std::int32_t> collective_of_;  // parallel to index_.step_level()
  std::vector<std::int32_t> needs_begin_;    // per position, and the end
  std::vector<Need> needs_;
  // State of a run. A row is pipeline * workers + worker.
  std::vector<int> next_;                  // per row: the position it stands at
  std::vector<int> collective_left_;       // posts and predecessors that are still open
  std::vector<std::size_t> head_;          // per worker: finished collectives of its queue
  std::vector<std::int32_t> state_;        // per pipeline and thing to be done
  std::vector<std::int32_t> next_waiter_;  // per row: another row that waits for the same
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
