#include "executor/job/executor.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "executor/job/links.h"
#include "executor/job/saving.h"
#include "executor/job/shared_samples.h"

namespace hetu {
namespace {

std::unique_ptr<Loader> loader_for(const Job& job, std::unique_ptr<RowSource> data) {
  LoaderOptions options;
  options.pipelines = job.plan().options.pipelines;
  options.pipeline = job.plan().pipeline;
  options.batch_size = job.plan().options.batch_size;
  const std::int64_t samples = options.batch_size / job.plan().options.micro_batches;
  for (const int share : job.plan().options.shares) options.shares.push_back(share * samples);
  Readers readers(job);
  std::unique_ptr<Loader> loader =
      open_loader(std::move(data), options, readers.open(job.plan().options.averaging.has_value()));
  readers.check_same(loader.get());
  if (loader) check_fields(job.plan().fields, loader->fields());
  return loader;
}

}  // namespace

Executor::Executor(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
                   std::unique_ptr<RowSource> data)
    : links_(open_links()),
      job_(graph, optimizer, options, *links_),
      loader_(loader_for(job_, std::move(data))) {}

StepResult Executor::step() {
  return telling([this] { return job_.train(loader_.get()); });
}

void Executor::run(int steps, const std::function<void(const StepResult&)>& on_step) {
  telling([&] {
    job_.begin_run(steps);
    while (const auto result = job_.next(loader_.get())) on_step(*result);
  });
}

StepResult Executor::validate(const std::vector<std::string>& fetches) {
  return telling([&] { return job_.validate(loader_.get(), {fetches}); });
}

void Executor::save(const std::string& folder, const std::vector<std::string>& fetches) {
  telling([&] { save_model(job_, folder, fetches); });
}

}  // namespace hetu
