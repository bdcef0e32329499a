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

const void* checked(const std::vector<std::byte>& data, const std::string& field,
                    std::int64_t bytes) {
  require(static_cast<std::int64_t>(data.size()) == bytes,
          "field '{}' of a batch has {} bytes, but the model reads {} bytes", field, data.size(),
          bytes);
  return data.data();
}

}  // namespace

void check_fields(const std::vector<FeedSpec>& wanted, const std::vector<Field>& given) {
  for (const Field& field : given) {
    const auto found = std::find_if(wanted.begin(), wanted.end(), [&field](const FeedSpec& spec) {
      return spec.name == field.name;
    });
    if (found == wanted.end()) continue;
    require(found->dtype == field.dtype && found->sample_shape == field.shape,
            "field '{}': the data have rows of {} {}, the model's placeholder takes {} {}. Change "
            "the placeholder, or convert the rows.",
            field.name, dtype_name(field.dtype), to_string(field.shape), dtype_name(found->dtype),
            to_string(found->sample_shape));
  }
}

FieldLookup fields_of(Batch& batch) {
  return [&batch](const std::string& field, std::int64_t bytes) -> const void* {
    return checked(batch.at(field).bytes, field, bytes);
  };
}

void look_ahead(Trainer& trainer, Loader* loader, const Batch& last) {
  // A null loader means that this worker reads no field.
  const auto next = [loader] { return loader != nullptr ? loader->ahead() : nullptr; };
  BatchesAhead ahead;
  if (loader != nullptr) ahead.read = [loader] { loader->prepare(); };
  ahead.field = [next](const std::string& field, std::int64_t bytes) -> const void* {
    const Batch* const batch = next();
    if (batch == nullptr) return nullptr;
    const std::vector<std::byte>& data = batch->at(field).bytes;
    return static_cast<std::int64_t>(data.size()) == bytes ? data.data() : nullptr;
  };
  ahead.number = [next] {
    const Batch* const batch = next();
    return batch != nullptr ? batch->number : 0;
  };
  ahead.last_number = [&last] { return last.number; };
  trainer.look_ahead(std::move(ahead));
}

FieldLookup joined_fields(const std::vector<Batch>& parts) {
  // The joined bytes belong to the lookup, so that they exist until it is destroyed.
  auto joined = std::make_shared<std::map<std::string, std::vector<std::byte>>>();
  return [&parts, joined](const std::string& field, std::int64_t bytes) -> const void* {
    std::vector<std::byte>& all = (*joined)[field];
    all.clear();
    for (const Batch& part : parts) {
      const std::vector<std::byte>& data = part.at(field).bytes;
      all.insert(all.end(), data.begin(), data.end());
    }
    return checked(all, field, bytes);
  };
}

Executor::Executor(const Graph& graph, const OptimizerConfig& optimizer,
                   const TrainerOptions& options, std::unique_ptr<RowSource> data)
    : graph_(graph),
      links_(open_links()),
      trainer_(graph, optimizer, options, *links_),
      loader_(loader_for(trainer_, *links_, std::move(data))) {
  // The trainer keeps a reference to batch_, which is a member for that reason.
  look_ahead(trainer_, loader_.get(), batch_);
}

FieldLookup Executor::next() {
  if (loader_) loader_->next(batch_);
  return fields_of(batch_);
}

StepResult Executor::step() {
  return telling([this] {
    return rereading(loader_.get(), *links_, [this] { return trainer_.train(next()); });
  });
}

void Executor::run(int steps, const std::function<void(const StepResult&)>& on_step) {
  telling([&] {
    trainer_.begin_run(steps);
    const auto one = [this] { return trainer_.next([this] { return next(); }); };
    while (const auto result = rereading(loader_.get(), *links_, one)) on_step(*result);
  });
}

StepResult Executor::validate(const std::vector<std::string>& fetches) {
  return telling([&] {
    return rereading(loader_.get(), *links_, [&] { return trainer_.validate(next(), {fetches}); });
  });
}

void Executor::save(const std::string& folder, const std::vector<std::string>& fetches) {
  telling([&] { save_model(trainer_, *links_, graph_, folder, fetches); });
}

}  // namespace hetu
