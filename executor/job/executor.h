// Training for C++ programs: links, trainer and data in one object. The same program runs alone or,
// under heturun, as every worker of a job.
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"
#include "datasets/source.h"
#include "executor/job/trainer.h"

namespace hetu {

/// An error that leaves one of its functions is told to the other workers, whose waits fail with
/// it; the program itself catches it and ends as it likes. In a job of one worker the program may
/// go on: the call is undone as Trainer says, and the next one reads the same batch again. Calls of
/// several threads run one after the other.
class Executor {
 public:
  /// A finished graph with gradients, trained on `data`, whose fields are the graph's placeholders.
  /// Rows that may differ between processes (CallbackSource, StreamSource) are read by one worker,
  /// which sends the others what they read.
  /// The number of workers must be options.pipelines * options.stages; worker = pipeline * stages +
  /// stage. Throws as Trainer and Loader do.
  Executor(const Graph& graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
           std::unique_ptr<RowSource> data);

  /// One step on the next global batch.
  StepResult step();
  /// So many steps, each reported as it is done; for asynchronous plans, whose
  /// pipeline is filled and drained once.
  void run(int steps, const std::function<void(const StepResult&)>& on_step);
  /// Forward only, on the next global batch; of these fetches, none: of all.
  StepResult validate(const std::vector<std::string>& fetches = {});
  /// Saves the graph that predicts these fetches, and its weights, for Predictor
  /// (executor/predict/predictor.h). Every worker calls it, and sees the folder. The model that the
  /// folder holds is replaced, whatever its step. Throws Io, also where the folder holds
  /// checkpoints of a training.
  void save(const std::string& folder, const std::vector<std::string>& fetches);

  Trainer& trainer() { return trainer_; }
  /// True in the worker that prints.
  bool is_chief() const { return links_->worker() == 0; }

 private:
  FieldLookup next();
  template <class Work>
  auto telling(const Work& work) {
    const auto whole = trainer_.lock();
    try {
      return work();
    } catch (const std::exception& error) {
      if (links_->workers() > 1) links_->give_up(error.what());
      throw;
    }
  }

  const Graph graph_;  // as it was given; what is trained has been through passes
  std::unique_ptr<comm::Transport> links_;
  Trainer trainer_;
  std::unique_ptr<Loader> loader_;  // null where a worker reads no field
  Batch batch_;
};

/// Checks what a data source gives against what the model reads: every field of `given` that the
/// model has a placeholder for must have its dtype and the shape of its rows. `wanted` is
/// Trainer::fields(). Throws InvalidArgument that names the field, both types and what to change.
void check_fields(const std::vector<FeedSpec>& wanted, const std::vector<Field>& given);

/// Does `work`, which takes the next batch of `loader` (null: none). If it throws in a job of one
/// worker, the loader goes back, and the next call reads that batch again.
template <class Work>
auto rereading(Loader* loader, const comm::Transport& links, const Work& work) {
  if (loader == nullptr || links.workers() > 1) return work();
  const Position before = loader->position();
  try {
    return work();
  } catch (...) {
    loader->seek(before);
    throw;
  }
}

/// The bytes of a field of `batch`, for Trainer. Throws InvalidArgument if it is missing or not as
/// long as the model reads.
FieldLookup fields_of(Batch& batch);

/// Tells the trainer what is known of the batch after `last`, which `loader` fills; null: nothing.
/// All must outlive its steps.
void look_ahead(Trainer& trainer, Loader* loader, const Batch& last);

/// The same of the batches of several pipelines, one after the other. It holds until they change,
/// and no longer than the lookup lives.
FieldLookup joined_fields(const std::vector<Batch>& parts);

}  // namespace hetu
