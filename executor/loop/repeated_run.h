// Runs of a plan whose body repeats over many steps: filled once, drained once, in between at the
// pace of the pipeline. One per worker, driven by Trainer and by `hetu rehearse`; knows no method.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "executor/loop/interpreter.h"
#include "executor/loop/run_channel.h"
#include "executor/sync/averager.h"

namespace hetu {

class RepeatedRun {
 public:
  /// `fetches`: of a report. `group`: workers whose runs have one length and one report per step;
  /// all, or, with an averager, those of this pipeline. Runner, links and averager must outlive it.
  RepeatedRun(StageRunner& runner, const Interpreter::Links& links, std::size_t fetches,
              comm::Group group, Averager* averager = nullptr);

  /// Begins a run of `steps` steps, the first of which is `first_step` of the training, by a
  /// lowered plan of at most so many. If each of its rows has a body, the bodies repeat until
  /// `steps` are done or all workers have heard that worker 0 was asked to stop; steps -
  /// plan.steps must then be a multiple of run_grain(plan) (pipeline/ir/run_length.h).
  void begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace);
  /// The same where pipelines average weights: this one's run ends where its averager says, which
  /// may be more or fewer steps than `plan` has, but no fewer than steps_before_answer(plan).
  void begin_averaged(const Schedule& plan, int first_step, TraceRecorder* trace);

  /// Goes on by one repetition of the body, or by the drain; false if all is done.
  bool advance();
  /// Ends this run early: soon, at the same step on all workers.
  void ask_to_stop() { asks_to_stop_ = true; }

  /// Chief: the report of the next step that all workers of the group have done; after the end of
  /// the run all are waited for. Others: what they know themselves.
  std::optional<StepReport> next_report();

  /// The first worker of the group, which has the results of all.
  bool is_chief() const { return channel_.is_chief(); }
  /// Steps of the run: known at its end.
  int steps() const { return channel_.granted(); }
  bool is_stopped() const { return channel_.is_final() && channel_.granted() < wanted_; }
  /// True of the step after which the run ends.
  bool is_last(int step) const {
    return channel_.is_final() && step - first_step_ + 1 == channel_.granted();
  }

 private:
  void send_reports();
  void start(const Schedule& plan, int first_step, TraceRecorder* trace);
  void look_ahead();
  void grant_averaged();
  int repetitions() const;

  StageRunner& runner_;
  Interpreter::Links links_;
  RunChannel channel_;
  Averager* averager_ = nullptr;
  int ahead_ = 1;  // steps_before_answer() of the plan
  std::unique_ptr<Interpreter> loop_;
  std::deque<StepReport> own_;  // other workers than the chief
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
