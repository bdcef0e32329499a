// Runs the rows of several pipelines in order of time. It is the base of the simulations in which
// each pipeline goes at its own pace. A derived class decides what holds up a row and what its own
// instructions do.
#pragma once
#include <cstdint>
#include <queue>
#include <vector>

#include "pipeline/cost/timing.h"
#include "pipeline/simulate/simulate_options.h"
#include "pipeline/simulate/simulation.h"

namespace hetu {

/// A discrete-event simulation of rows. Compute, updates, messages and sums are simulated here.
class RowRun {
 public:
  virtual ~RowRun() = default;
  RowRun(const RowRun&) = delete;
  RowRun& operator=(const RowRun&) = delete;

 protected:
  /// A future event. `what` is kRowIsFree or a positive number that the derived class defines.
  struct Event {
    double at;
    std::int64_t order;  // order of events at equal times
    int row;
    int what;
    std::int64_t value;
    bool operator>(const Event& e) const { return at != e.at ? at > e.at : order > e.order; }
  };
  static constexpr int kRowIsFree = 0;

  /// Prepares a run of all rows. A row is pipeline * workers + worker. The arguments must outlive
  /// this object. Throws InvalidArgument for bounded send slots and for pairs that run as one.
  RowRun(const Progress& progress, const Costs& costs, const SimulateOptions& options);

  /// Starts all rows and processes events until there are no more.
  void run_rows();

  /// Returns true if the row skips the instruction.
  virtual bool is_skipped(int /*row*/, const Instr& /*instr*/) { return false; }
  /// Returns true if the row must not start the instruction yet. The derived class calls advance()
  /// when it can.
  virtual bool is_held_up(int /*row*/, const Instr& /*instr*/) { return false; }
  /// Called when the row arrives at an instruction that is not a computation, an update, a message
  /// or a sum, such as PUSH, PULL or PARTIAL_REDUCE.
  virtual void on_instruction(int row, const Instr& instr) = 0;
  /// Called at the time of an event of the derived class.
  virtual void on_event(const Event& event) = 0;
  /// Called when a compute instruction starts at `at`.
  virtual void computed(int row, const Instr& instr, double at, double time) = 0;
  /// Called before each event and at the end, with the time of the next event. Returns true if it
  /// did something that comes before `next`.
  virtual bool goes_before(double /*next*/) { return false; }

  /// Runs the instructions that the row can start at this time. Messages take no time of the
  /// worker.
  void advance(int row);
  /// Adds an event at time `at`.
  void push(double at, int row, int what, std::int64_t value = 0);
  /// Adds an event to the result, if events are requested. Times are in the costs' unit.
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
  std::vector<double> network_free_;  // per row: end of its last sum or mean
  Simulation result_;

 private:
  static constexpr double kOpen = -1;

  struct Row {
    int next = 0;               // position
    bool busy = false;          // busy until its kRowIsFree event
    std::int64_t computed = 0;  // compute instructions so far
    std::size_t begun = 0;      // sums begun so far, in the order of the worker's queue
  };

  // Returns the end time of a position, or of index.size() + a collective; kOpen if it is not done.
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
  std::vector<double> end_;               // end times per pipeline: positions, then collectives
  std::vector<std::vector<int>> queues_;  // per worker: its collectives in the order of posting
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t order_ = 0;
};

}  // namespace hetu
