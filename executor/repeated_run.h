// Runs of a plan whose body repeats over many steps: filled once, drained once, in between at the
// pace of the pipeline. One per worker, driven by Trainer; knows no method.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "executor/interpreter.h"
#include "executor/run_channel.h"
#include "executor/train_runner.h"

namespace hetu {

/// By how many steps runs of a plan differ in length, so that each row's body repeats whole times;
/// 0 if a row has no body that repeats.
int run_grain(const Schedule& plan);

class RepeatedRun {
 public:
  /// `fetches`: of the graph. Runner and links must outlive it.
  RepeatedRun(TrainRunner& runner, const Interpreter::Links& links, std::size_t fetches);

  /// Begins a run of `steps` steps, the first of which is `first_step` of the training, by a
  /// lowered plan of at most so many. If each of its rows has a body, the bodies repeat until
  /// `steps` are done or all workers have heard that worker 0 was asked to stop; steps -
  /// plan.steps must then be a multiple of run_grain(plan).
  void begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace);

  /// Goes on by one repetition of the body, or by the drain; false if all is done.
  bool advance();
  /// Ends this run early: soon, at the same step on all workers.
  void ask_to_stop() { asks_to_stop_ = true; }

  /// Worker 0: the report of the next step that all workers have done; after the end of the run all
  /// are waited for. Others: what they know themselves.
  std::optional<StepReport> next_report();

  /// Steps of the run: known at its end.
  int steps() const { return channel_.granted(); }
  bool is_stopped() const { return channel_.is_final() && channel_.granted() < wanted_; }
  /// True of the step after which the run ends.
  bool is_last(int step) const {
    return channel_.is_final() && step - first_step_ + 1 == channel_.granted();
  }

 private:
  void send_reports();
  void look_ahead();
  int repetitions() const;

  TrainRunner& runner_;
  Interpreter::Links links_;
  RunChannel channel_;
  std::unique_ptr<Interpreter> loop_;
  std::deque<StepReport> own_;  // other workers than 0
  TraceRecorder* trace_ = nullptr;
  int wanted_ = 0;
  int first_step_ = 0;
  int plan_steps_ = 0, plan_repeat_ = 0, steps_per_repeat_ = 0;  // of this worker's row
  int started_ = 0;                                              // repetitions
  int margin_ = 0;  // repetitions before the end of what is granted at which more is
  int reported_ = 0;
  bool begun_ = false;
  bool drained_ = true;
  bool asks_to_stop_ = false;
};

}  // namespace hetu
