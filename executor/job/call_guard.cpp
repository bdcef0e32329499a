#include "executor/job/call_guard.h"

#include <exception>

#include "base/error.h"
#include "executor/device/threads.h"

namespace hetu {

// A forked child must not wait for the lock, because the thread that would release it may not exist
// there.
std::unique_lock<std::recursive_mutex> CallGuard::enter() const {
  require(!process_.is_forked(),
          "this process was forked from process {}, and a training job can't be used in a forked "
          "child. Create the job in the child, or save a model and use a Predictor there",
          process_.id());
  std::unique_lock lock(calls_);
  if (!failure_.empty()) throw Error(code_, failure_);
  return lock;
}

StepReport CallGuard::train(std::int64_t step, TraceRecorder* trace,
                            const std::function<StepReport()>& work) {
  const ScopedThreadCount while_it_runs(threads_);
  const std::size_t records = trace != nullptr ? trace->records().size() : 0;
  try {
    if (!limits_.others && !limits_.asynchronous) job_.stages.undo().prepare();
    return work();
  } catch (const std::exception& error) {
    job_.run_left = 0;
    if (trace != nullptr) trace->keep_first(records);
    undo(/*training=*/true, step, error);
    throw;
  }
}

StepReport CallGuard::validate(std::int64_t step, const std::function<StepReport()>& work) {
  const ScopedThreadCount while_it_runs(threads_);
  try {
    return work();
  } catch (const std::exception& error) {
    undo(/*training=*/false, step, error);
    throw;
  }
}

void CallGuard::with_mean_buffers(const std::function<void()>& work) {
  const std::vector<float> own = job_.stages.buffers();
  try {
    job_.stages.average_buffers();
    work();
  } catch (...) {
    try {
      job_.stages.undo().recover(/*restores_buffers=*/false);
      job_.stages.set_buffers(own);
    } catch (const std::exception&) {  // the device is unusable; the first error is reported
    }
    throw;
  }
  job_.stages.set_buffers(own);
}

// Returns the reason why an error in a training step, or in a validation, can't be undone; empty if
// it can.
std::string CallGuard::cant_undo(bool training) const {
  if (limits_.others) return "other processes or threads took part";
  if (!training) return "";
  if (limits_.asynchronous)
    return "the plan updates weights while other micro-batches are computed";
  if (limits_.kfac) return "K-FAC gathers its factors over several steps";
  if (job_.stages.undo().has_begun_update()) return "the update of the weights had begun";
  return "";
}

void CallGuard::undo(bool training, std::int64_t step, const std::exception& error) {
  std::string why = cant_undo(training);
  if (why.empty()) {
    try {
      job_.run.abandon();
      job_.validation.abandon();
      job_.stages.undo().recover(/*restores_buffers=*/training);
      return;
    } catch (const std::exception& second) {
      why = fmt::format("the device can't go on: {}", second.what());
    }
  }
  if (!failure_.empty()) return;
  const auto* const known = dynamic_cast<const Error*>(&error);
  code_ = known != nullptr ? known->code() : Code::InvalidArgument;
  failure_ = fmt::format(
      "this job can't go on. Its first failure was in {}: {}. That call can't be undone, because "
      "{}. Start the job again, from its last checkpoint if it has one",
      training ? fmt::format("training step {}", step)
               : fmt::format("a prediction or evaluation after {} steps", step),
      error.what(), why);
}

}  // namespace hetu
