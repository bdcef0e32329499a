// A run of a plan, from one drained pipeline to the next. For a synchronous plan a run is one step.
// For an asynchronous plan it has many steps: the pipeline is filled once and drained once. Each
// worker has one Run, driven by Job and by `hetu rehearse`; it knows no method.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "executor/loop/interpreter.h"
#include "executor/loop/run_channel.h"
#include "executor/sync/averager.h"

namespace hetu {

/// Runs a worker's row step by step or over many steps, and collects the reports.
class Run {
 public:
  /// `fetches` is the number of fetches in a report. `group` has the workers whose runs have the
  /// same length and one report per step: all workers or, with an averager, those of this pipeline.
  /// Stages, links and averager must outlive the object.
  Run(Stages& stages, const Interpreter::Links& links, std::size_t fetches, comm::Group group,
      Averager* averager = nullptr);

  /// Begins a run of one step by a lowered plan that reduces its scalars. The plan must be one of a
  /// small number of plans, because each is bound once and kept. Plans must outlive this object.
  void begin_step(const Schedule& plan, int step, TraceRecorder* trace);
  /// Forgets the plans given to begin_step(), before other ones follow. Blocks until every send is
  /// done.
  void forget_steps();
  /// Begins a run of `steps` steps, the first of which is `first_step` of the training, by a
  /// lowered plan of at most `steps` steps. If every row has a body, the bodies repeat until
  /// `steps` steps are done, or until worker 0 was asked to stop and all workers have been
  /// notified. In that case steps - plan.steps must be a multiple of run_grain(plan)
  /// (pipeline/ir/run_length.h).
  void begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace);
  /// As begin(), where pipelines average weights. The run ends where the averager decides. It may
  /// have more or fewer steps than `plan`, but at least steps_before_answer(plan).
  void begin_averaged(const Schedule& plan, int first_step, TraceRecorder* trace);

  /// Runs the prologue, one repetition of the body, or the drain. Returns false if the run is done.
  /// After a step of begin_step(), sends may still be in progress: see finish().
  bool advance();
  /// Blocks until every send is done.
  void finish();
  /// Discards a run after an error, in a job of one worker, which sends nothing.
  void abandon();
  /// Ends this run early, at the same step on all workers. The next step reports that a worker has
  /// asked; in a run of several steps, all remaining ones do. The request does not affect the run
  /// after it.
  void ask_to_stop() { asks_to_stop_ = true; }

  /// Returns the report of the next step. On the chief, and on every worker after a step that
  /// reduces its scalars, it covers all workers of the group that have done the step. After the end
  /// of the run it waits for all reports. Other workers get their own values only. Returns nullopt
  /// if there is no report yet.
  std::optional<StepReport> next_report();

  /// Returns true for the first worker of the group, which has the results of all.
  bool is_chief() const { return channel_.is_chief(); }
  /// Returns the number of steps of the run, which is final at its end.
  int steps() const { return channel_.granted(); }
  bool is_stopped() const { return channel_.is_final() && channel_.granted() < wanted_; }
  /// Returns true for the step after which the run ends.
  bool is_last(int step) const {
    return channel_.is_final() && step - first_step_ + 1 == channel_.granted();
  }

 private:
  void take_reports();
  void start(const Schedule& plan, int first_step, TraceRecorder* trace);
  // A plan bound to this worker.
  struct Bound {
    std::unique_ptr<Interpreter> loop;
    int ahead = 1;  // steps_before_answer() of the plan
    int steps = 0, repeat = 0, steps_per_repeat = 0;
  };
  Bound bind(const Schedule& plan);
  void look_ahead();
  void grant_averaged();
  int repetitions() const;
  // Returns true if a worker's own reports are returned unchanged: if the step has reduced its
  // scalars, so that every worker has the sums, and on workers that don't receive the others'
  // reports.
  bool gives_own() const { return by_step_ || !channel_.is_chief(); }

  Stages& stages_;
  Interpreter::Links links_;
  RunChannel channel_;
  Averager* averager_ = nullptr;
  std::map<const Schedule*, Bound> of_steps_;  // plans of begin_step()
  Bound of_run_;
  Bound* now_ = nullptr;
  bool by_step_ = false;
  std::deque<StepReport> own_;  // reports of this worker, where they are returned unchanged
  TraceRecorder* trace_ = nullptr;
  int wanted_ = 0;
  int first_step_ = 0;
  int started_ = 0;  // repetitions of the body
  // Remaining granted repetitions at which the chief grants more.
  int margin_ = 0;
  int reported_ = 0;
  bool begun_ = false;
  bool drained_ = true;
  bool asks_to_stop_ = false;
  bool asked_in_step_ = false;  // the current step has taken asks_to_stop_
};

}  // namespace hetu
