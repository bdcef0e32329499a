// A run of a plan: from one drained pipeline to the next. Of a synchronous plan it is one step; of
// an asynchronous one many, filled once, drained once, in between at the pace of the pipeline. One
// per worker, driven by Trainer and by `hetu rehearse`; knows no method.
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

class Run {
 public:
  /// `fetches`: of a report. `group`: workers whose runs have one length and one report per step;
  /// all, or, with an averager, those of this pipeline. Stages, links and averager must outlive it.
  Run(Stages& stages, const Interpreter::Links& links, std::size_t fetches, comm::Group group,
      Averager* averager = nullptr);

  /// Begins a run of one step by a lowered plan that reduces its scalars: one of few, each of which
  /// is bound once and must outlive this.
  void begin_step(const Schedule& plan, int step, TraceRecorder* trace);
  /// Plans given to begin_step() are no more: other ones follow. Sleeps until every send is done.
  void forget_steps();
  /// Begins a run of `steps` steps, the first of which is `first_step` of the training, by a
  /// lowered plan of at most so many. If each of its rows has a body, the bodies repeat until
  /// `steps` are done or all workers have heard that worker 0 was asked to stop; steps -
  /// plan.steps must then be a multiple of run_grain(plan) (pipeline/ir/run_length.h).
  void begin(const Schedule& plan, int first_step, int steps, TraceRecorder* trace);
  /// The same where pipelines average weights: this one's run ends where its averager says, which
  /// may be more or fewer steps than `plan` has, but no fewer than steps_before_answer(plan).
  void begin_averaged(const Schedule& plan, int first_step, TraceRecorder* trace);

  /// Goes on by one repetition of the body, or by the drain; false if all is done. After a step
  /// sends may still be under way: see finish().
  bool advance();
  /// Sleeps until every send is done.
  void finish();
  /// After an error in a run of a job of one worker, which sends nothing: forgets that run.
  void abandon();
  /// Ends this run early: soon, at the same step on all workers. The next step reports that a
  /// worker has asked, and of a longer run all that are left; the run after it begins anew.
  void ask_to_stop() { asks_to_stop_ = true; }

  /// The chief, or every worker after a step that reduces its scalars: the report of the next step
  /// that all workers of the group have done; after the end of the run all are waited for. Others:
  /// what they know themselves.
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
  // A worker's own reports are given as they are: where the step has reduced its scalars, so that
  // they are everyone's, and on whom does not hear the others.
  bool gives_own() const { return by_step_ || !channel_.is_chief(); }

  Stages& stages_;
  Interpreter::Links links_;
  RunChannel channel_;
  Averager* averager_ = nullptr;
  std::map<const Schedule*, Bound> of_steps_;  // plans of one step
  Bound of_run_;
  Bound* now_ = nullptr;
  bool by_step_ = false;
  std::deque<StepReport> own_;  // of this worker, where it needs no others'
  TraceRecorder* trace_ = nullptr;
  int wanted_ = 0;
  int first_step_ = 0;
  int started_ = 0;  // repetitions
  int margin_ = 0;   // repetitions before the end of what is granted at which more is
  int reported_ = 0;
  bool begun_ = false;
  bool drained_ = true;
  bool asks_to_stop_ = false;
  bool asked_in_step_ = false;  // the step under way has taken asks_to_stop_
};

}  // namespace hetu
