// Rows of several pipelines in order of time: what the simulations share in which each pipeline
// goes at its own pace. A kind of run says what holds a row up, and what its own instructions do.
#pragma once
#include <cstdint>
#include <queue>
#include <vector>

#include "pipeline/cost/timing.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

class RowRun {
 public:
  virtual ~RowRun() = default;
  RowRun(const RowRun&) = delete;
  RowRun& operator=(const RowRun&) = delete;

 protected:
  /// Something that is to happen; `what` is kRowIsFree, or a number of the kind of run's own.
  struct Event {
    double at;
    std::int64_t order;  // of equal times
    int row;
    int what;
    std::int64_t value;
    bool operator>(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };
  static constexpr int kRowIsFree = 0;

  /// A row is pipeline * workers + worker. All but the stage graph's values must outlive it. Throws
  /// InvalidArgument for bounded send slots and for pairs that run as one.
  RowRun(const Progress& progress, const Costs& costs, const SimulateOptions& options);

  /// Begins all rows, and goes on until nothing is to happen any more.
  void run_rows();

  /// An instruction that its row passes by.
  virtual bool is_skipped(int /*row*/, const Instr& /*instr*/) { return false; }
  /// Whether the row cannot begin it yet; advance() comes when it can.
  virtual bool is_held_up(int /*row*/, const Instr& /*instr*/) { return false; }
  /// The row has come to an instruction that is neither computed nor a message nor a sum.
  virtual void reach(int row, const Instr& instr) = 0;
  virtual void happen(const Event& event) = 0;
  /// A compute instruction begins at `at`.
  virtual void computed(int row, const Instr& instr, double at, double time) = 0;
  /// Called before each event and at the end; true if it did something that comes before `next`.
  virtual bool goes_before(double /*next*/) { return false; }

  /// Runs what the row can start now. Messages take no time of a worker's.
  void advance(int row);
  void push(double at, int row, int what, std::int64_t value = 0);
  void add_event(int row, const Instr& instr, double at, double time, int step);
  int step_of(const Instr& instr) const;

  int worker(int row) const { return row % workers_; }
  bool has_ended(int row) const { return rows_[row].next == index_.row_end(worker(row)); }
  int row_of(int pipeline, int stage) const {
    return pipeline * workers_ + index_.graph().worker(stage);
  }

  const Progress& progress_;
  const PlanIndex& index_;
  const int workers_, pipelines_;
  const double unit_us_;
  const Timing timing_;
  double now_ = 0;
  std::vector<double> network_free_;  // per row: when its last sum or mean ended
  Simulation result_;

 private:
  static constexpr double kOpen = -1;

  struct Row {
    int next = 0;               // position
    bool busy = false;          // until an event says otherwise
    std::int64_t computed = 0;  // instructions
    std::size_t begun = 0;      // sums, of the worker's own in their order
  };

  double& end(int pipeline, int done) {
    return end_[static_cast<std::size_t>(pipeline) *
                    (index_.size() + progress_.collectives().size()) +
                done];
  }
  bool may_start(int row, const Instr& instr);
  void run(int row, int position);
  void pass(int row, int position);
  void post(int row, int position);
  bool all_post(int pipeline, int collective);
  void begin_sum(int pipeline, int collective);

  const SimulateOptions& options_;
  std::vector<Row> rows_;
  std::vector<double> end_;               // per pipeline: of positions, then of collectives
  std::vector<std::vector<int>> queues_;  // per worker: collectives in the order of its posts
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t order_ = 0;
};

}  // namespace hetu
