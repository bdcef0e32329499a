// A guard around each call of a job. It admits one thread at a time, and restores the state
// from before the call after an error. Where that is impossible, every later call reports the first
// failure. Used by job.h.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "executor/device/fork_gate.h"
#include "executor/loop/run.h"
#include "executor/stage/train_stages.h"

namespace hetu {

/// Serializes the calls of a job and undoes calls that fail.
class CallGuard {
 public:
  /// The objects that a call changes. All of them must outlive the guard.
  struct Job {
    TrainStages& stages;
    Run& run;
    Run& validation;
    std::int64_t& run_left;  ///< remaining steps of the run; an error in a step ends the run
  };
  /// The properties of a job that make it impossible to undo an error.
  struct Limits {
    bool others = false;        ///< other workers or servers take part in each call
    bool asynchronous = false;  ///< training steps overlap
    bool kfac = false;          ///< factors are accumulated over several training steps
  };
  /// `threads`: the number of kernel threads during a call, whichever thread calls; 0 keeps the
  /// calling thread's setting.
  CallGuard(const Job& job, const Limits& limits, int threads)
      : job_(job), limits_(limits), threads_(threads) {}

  /// Locks out other threads while the lock is held. The holder may enter again. Throws the first
  /// failure, if there is one. Throws InvalidArgument in a forked child, because it has neither the
  /// threads nor the links of its parent's job.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> enter() const;

  /// Runs a training step, or a validation after `step` steps. If `work` throws, the guard restores
  /// weights, states, buffers and `trace` (null: not recording), and rethrows the error.
  StepReport train(std::int64_t step, TraceRecorder* trace,
                   const std::function<StepReport()>& work);
  StepReport validate(std::int64_t step, const std::function<StepReport()>& work);

  /// Calls `work` while buffers hold the mean over pipelines, and restores them afterwards, also
  /// after an error.
  void with_mean_buffers(const std::function<void()>& work);

 private:
  std::string cant_undo(bool training) const;
  void undo(bool training, std::int64_t step, const std::exception& error);

  Job job_;
  Limits limits_;
  int threads_;
  OwnProcess process_;
  mutable std::recursive_mutex calls_;
  std::string failure_;  // the first failure that could not be undone; empty if there is none
  Code code_ = Code::Internal;
};

}  // namespace hetu
