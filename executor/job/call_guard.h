// A guard around each call of a trainer: one thread at a time, and after an error the state from
// before the call. Where that can't be, every later call names the first failure. Used by
// trainer.h.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "executor/device/fork_gate.h"
#include "executor/loop/run.h"
#include "executor/stage/train_stages.h"

namespace hetu {

class CallGuard {
 public:
  /// The objects that a call changes. All must outlive the guard.
  struct Job {
    TrainStages& stages;
    Run& run;
    Run& validation;
    std::int64_t& run_left;  ///< steps of the run that are to come; an error in a step ends the run
  };
  /// Why errors can't be undone.
  struct Limits {
    bool others = false;        ///< other workers or servers take part in each call
    bool asynchronous = false;  ///< training steps overlap
    bool kfac = false;          ///< factors are gathered over several training steps
  };
  /// `threads`: those of kernels, whichever thread calls; 0: as that thread has them.
  CallGuard(const Job& job, const Limits& limits, int threads)
      : job_(job), limits_(limits), threads_(threads) {}

  /// Keeps other threads out while the lock is held; the holder may enter again. Throws the first
  /// failure, if there is one. Throws InvalidArgument in a forked child, which has none of the
  /// threads and links of its parent's job.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> enter() const;

  /// Does a training step, or a validation after `step` steps. An error undoes it: weights, states,
  /// buffers and `trace` (null: none) are as before, and the error goes on.
  StepReport train(std::int64_t step, TraceRecorder* trace,
                   const std::function<StepReport()>& work);
  StepReport validate(std::int64_t step, const std::function<StepReport()>& work);

  /// Calls `look` while buffers are the mean over pipelines, and puts them back, also after an
  /// error.
  void with_means(const std::function<void()>& look);

 private:
  std::string cant_undo(bool training) const;
  void undo(bool training, std::int64_t step, const std::exception& error);

  Job job_;
  Limits limits_;
  int threads_;
  OwnProcess process_;
  mutable std::recursive_mutex calls_;
  std::string failure_;  // the first that could not be undone; empty: none
  Code code_ = Code::Internal;
};

}  // namespace hetu
