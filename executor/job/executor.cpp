#include "executor/job/executor.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "executor/job/links.h"
#include "executor/job/saving.h"
#include "executor/job/shared_samples.h"

namespace hetu {
namespace {

std::unique_ptr<Loader> loader_for(const Trainer& trainer, comm::Transport& links,
                                   std::unique_ptr<RowSource> data) {
  LoaderOptions options;
  options.pipelines = trainer.options().pipelines;
  options.pipeline = trainer.pipeline();
  options.batch_size = trainer.options().batch_size;
  Readers readers(trainer, links);
  std::unique_ptr<Loader> loader =
      open_loader(std::move(data), options, readers.open(trainer.options().averaging.has_value()));
  readers.check_same(loader.get());
  if (loader) check_fields(trainer.fields(), loader->fields());
  return loader;
}

}  // namespace

Executor::Executor(const Graph& graph, const OptimizerConfig& optimizer,
                   const TrainerOptions& options, std::unique_ptr<RowSource> data)
    : graph_(graph),
      links_(open_links()),
      trainer_(graph, optimizer, options, *links_),
      loader_(loader_for(trainer_, *links_, std::move(data))) {}

StepResult Executor::step() {
  return telling([this] { return trainer_.train(loader_.get()); });
}

void Executor::run(int steps, const std::function<void(const StepResult&)>& on_step) {
  telling([&] {
    trainer_.begin_run(steps);
    while (const auto result = trainer_.next(loader_.get())) on_step(*result);
  });
}

StepResult Executor::validate(const std::vector<std::string>& fetches) {
  return telling([&] { return trainer_.validate(loader_.get(), {fetches}); });
}

void Executor::save(const std::string& folder, const std::vector<std::string>& fetches) {
  telling([&] { save_model(trainer_, *links_, graph_, folder, fetches); });
}

}  // namespace hetu
