#include "executor/job/executor.h"

#include <cctype>
#include <utility>

#include "base/error.h"
#include "base/fields.h"
#include "base/log.h"
#include "executor/job/links.h"
#include "executor/job/saving.h"
#include "graph/passes/dead.h"

namespace hetu {
namespace {

// Replaces flags of scripts in a message by the members of JobOptions that they set.
std::string with_members(std::string text) {
  JobOptions options;
  for (const OptionField& field : joined(grid_fields(options), fields(options))) {
    const std::string flag = flag_of(field);
    if (flag.size() < 3) continue;  // no flag, or a single letter
    for (std::size_t at = text.find(flag); at != std::string::npos; at = text.find(flag, at + 1)) {
      const std::size_t end = at + flag.size();
      const auto next = static_cast<unsigned char>(end < text.size() ? text[end] : ' ');
      const bool is_whole = std::isalnum(next) == 0 && next != '-';
      if (is_whole) text.replace(at, flag.size(), field.name);
    }
  }
  return text;
}

std::unique_ptr<comm::Transport> links_for(const RowSource* data) {
  require(data != nullptr,
          "Executor: the data source is null; pass a source such as callback_source(...)");
  return open_links();
}

LoaderOptions loader_options(const Job& job) {
  LoaderOptions options;
  options.pipelines = job.plan().options.pipelines;
  options.pipeline = job.plan().pipeline;
  options.batch_size = job.plan().options.batch_size;
  const std::int64_t samples = options.batch_size / job.plan().options.micro_batches;
  for (const int share : job.plan().options.shares) options.shares.push_back(share * samples);
  return options;
}

// Reports rows that no step reads. The reader of a source with a fixed order loses the same rows in
// every epoch, and can't see that from its results.
void report_dropped(const Loader& loader) {
  const std::int64_t dropped = loader.dropped_per_epoch(), batches = loader.batches_per_epoch();
  if (dropped <= 0) return;
  log(Level::Info,
      "data: an epoch has {} steps of {} rows. Its last {} of {} rows are not read; they are the "
      "same rows in every epoch unless the source orders rows by Batch::epoch",
      batches, loader.global_batch(), dropped, batches * loader.global_batch() + dropped);
}

std::unique_ptr<Loader> loader_for(const Job& job, Readers& readers,
                                   std::unique_ptr<RowSource> data) {
  const ReaderSet set = readers.open(job.plan().options.averaging.has_value());
  std::unique_ptr<Loader> loader = open_loader(std::move(data), loader_options(job), set);
  readers.check_same(loader.get());
  if (loader) check_fields(job.plan().fields, loader->fields());
  if (loader && set.me == 0) report_dropped(*loader);
  return loader;
}

}  // namespace

Executor::Executor(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& options,
                   std::unique_ptr<RowSource> data) try
    : links_(links_for(data.get())),
      job_(graph, optimizer, options, *links_),
      readers_(job_),
      loader_(loader_for(job_, readers_, std::move(data))) {
} catch (const Error& error) {
  throw Error(error.code(), with_members(error.what()));
}

StepResult Executor::step() {
  return telling([this] { return job_.train(loader_.get()); });
}

void Executor::run(int steps, const std::function<void(const StepResult&)>& on_step) {
  require(on_step != nullptr, "run: on_step is null; pass a function that takes a StepResult");
  telling([&] {
    job_.begin_run(steps);
    while (const auto result = job_.next(loader_.get())) on_step(*result);
  });
}

StepResult Executor::validate(const std::vector<std::string>& fetches) {
  return telling([&] { return job_.validate(loader_.get(), {fetches}); });
}

void Executor::evaluate(std::unique_ptr<RowSource> data, const std::vector<std::string>& fetches,
                        const std::function<void(const StepResult&)>& on_batch) {
  require(data != nullptr && on_batch != nullptr, "evaluate: {} is null",
          data == nullptr ? "the data source" : "on_batch");
  if (job_.plan().options.averaging)
    fail(Code::Unsupported,
         "evaluate is not supported while pipelines average weights; save the model, and use "
         "Predictor");
  telling([&] {
    const Graph& graph = job_.given_graph();
    const std::vector<ValueId> wanted =
        needed_in_run(graph, /*training=*/false, fetched_values(graph, fetches));
    const ReaderSet set = readers_.open(/*apart=*/false, false, fields_for(graph, wanted));
    LoaderOptions options = loader_options(job_);
    options.every_row_once = true;
    const std::unique_ptr<Loader> loader = open_loader(std::move(data), std::move(options), set);
    readers_.check_same(loader.get());
    while (const auto result = job_.validate_rows(loader.get(), {fetches})) on_batch(*result);
  });
}

void Executor::save(const std::string& folder, const std::vector<std::string>& fetches) {
  telling([&] { save_model(job_, folder, fetches); });
}

}  // namespace hetu
