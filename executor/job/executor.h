// Training for C++ programs: the job with its links and data. The same program runs as a single
// process or, under heturun, as every worker of a job.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"
#include "datasets/source.h"
#include "executor/job/job.h"
#include "executor/job/shared_samples.h"

namespace hetu {

/// Trains a graph on a data source.
///
/// If one of its functions throws, it passes the error to the other workers, whose waits then fail
/// with the same error. The program itself catches the error and ends as it chooses. In a job of
/// one worker the program may continue: the call is undone as Job describes, and the next call
/// reads the same batch again. Calls of several threads run one after the other.
class Executor {
 public:
  /// Trains `graph`, a finished graph with gradients, on `data`, whose fields are the graph's
  /// placeholders. Rows that may differ between processes (CallbackSource, StreamSource) are read
  /// by one worker and sent to the others. The number of workers must be options.pipelines *
  /// options.stages, where worker = pipeline * stages + stage. Throws InvalidArgument if `data` is
  /// null, and as Job and Loader do. Messages name options by their members.
  ///
  /// The source decides the order of rows (datasets/source.h). An epoch takes whole global batches;
  /// a line on standard error reports the rows at its end that are not read.
  Executor(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
           std::unique_ptr<RowSource> data);

  /// Runs one step on the next global batch.
  StepResult step();
  /// Runs `steps` steps and reports each one when it is done. Use this for asynchronous plans: the
  /// pipeline is filled and drained once. Throws InvalidArgument if `on_step` is null.
  void run(int steps, const std::function<void(const StepResult&)>& on_step);
  /// Runs a forward pass on the next global batch of the training data and returns the given
  /// fetches; an empty list means all fetches. The batch counts as read: the next step() takes the
  /// one after it. Use evaluate() for other data.
  StepResult validate(const std::vector<std::string>& fetches = {});
  /// Runs a forward pass on every row of `data` once, such as held-out rows, and calls `on_batch`
  /// with the fetches of each global batch. The last batch may be short: StepResult::rows is the
  /// number of rows. `data` needs the fields that the fetches read, and no others. The training's
  /// position in its data doesn't change. Collective: every worker calls it. Throws InvalidArgument
  /// if `data` or `on_batch` is null or a field is missing, and Unsupported if pipelines average
  /// weights.
  void evaluate(std::unique_ptr<RowSource> data, const std::vector<std::string>& fetches,
                const std::function<void(const StepResult&)>& on_batch);
  /// As save_model (saving.h).
  void save(const std::string& folder, const std::vector<std::string>& fetches);

  Job& job() { return job_; }
  /// Returns true in the worker that prints.
  bool is_chief() const { return links_->worker() == 0; }

 private:
  template <class Work>
  auto telling(const Work& work) {
    const auto whole = job_.lock();
    try {
      return work();
    } catch (const std::exception& error) {
      if (links_->workers() > 1) links_->give_up(error.what());
      throw;
    }
  }

  std::unique_ptr<comm::Transport> links_;
  Job job_;
  Readers readers_;
  std::unique_ptr<Loader> loader_;  // null in a worker that reads no field
};

}  // namespace hetu
