#include "executor/predict/predictor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "executor/device/threads.h"
#include "executor/predict/saved_model.h"
#include "executor/stage/stage.h"
#include "executor/stage/stage_tensors.h"
#include "graph/base/error.h"
#include "graph/passes/channels_last.h"
#include "graph/passes/fuse_norm.h"
#include "ops/registry.h"

namespace hetu {
namespace {

// One worker's one forward.
Schedule forward_plan() {
  Schedule plan;
  plan.method = "predict";
  plan.stages = plan.micro_batches = 1;
  plan.placements = {{{0}, 0, 0}};
  plan.workers.resize(1);
  plan.workers[0].drain = {{Kind::Forward}};
  plan.workers[0].drain[0].micro = 0;
  return plan;
}

CompileOptions compile_options(std::int64_t rows, const PredictorOptions& options) {
  CompileOptions compile;
  compile.first_block = {0};
  compile.micro_batch = rows;
  compile.training = false;
  compile.kernels = options.kernels;
  compile.prepare = backend(options.device).prepare;
  return compile;
}

}  // namespace

struct Predictor::Impl {
  Impl(SavedModel model, const PredictorOptions& options)
      : rows(options.rows > 0 ? options.rows : model.rows),
        graph(options.kernels == KernelChoice::Best
                  ? channels_last(fuse_norm(model.graph), op_set())
                  : std::move(model.graph)),
        plan(forward_plan()),
        device(open_device(options.device)) {
    context.plan = &plan;
    context.training = false;
    auto compiled =
        std::make_unique<StagePlan>(compile_stage(graph, compile_options(rows, options)));
    stage = std::make_unique<Stage>(graph, std::move(compiled), 0, context, *device, 1);
    load_checkpoint(model.weights,
                    state_of(graph, *stage, OptimizerConfig::Kind::Sgd, *device));
  }

  // Number of rows that all fields have.
  std::int64_t check(const std::map<std::string, ArrayView>& fields) const {
    std::string known;
    for (const ValueId v : graph.placeholders)
      known += fmt::format("{}'{}' {}", known.empty() ? "" : ", ", graph.producer(v).name,
                           to_string(graph.values[v].type));
    for (const auto& [name, view] : fields)
      require(std::any_of(graph.placeholders.begin(), graph.placeholders.end(),
                          [&](ValueId v) { return graph.producer(v).name == name; }),
              "the model reads no field '{}'; it reads {}", name, known);
    std::int64_t found = -1;
    for (const ValueId v : graph.placeholders) {
      const std::string& name = graph.producer(v).name;
      const auto field = fields.find(name);
      require(field != fields.end(), "field '{}' is missing; the model reads {}", name, known);
      const TensorType& type = graph.values[v].type;
      const ArrayView& view = field->second;
      const bool same_rows = view.shape.size() == type.shape.size() &&
                             std::equal(view.shape.begin() + 1, view.shape.end(),
                                        type.shape.begin() + 1, type.shape.end());
      require(view.dtype == type.dtype && same_rows, "field '{}' is {}, the model reads {}", name,
              to_string(TensorType{view.dtype, view.shape}), to_string(type));
      require(found < 0 || found == view.shape[0], "field '{}' has {} rows, another one {}", name,
              view.shape[0], found);
      found = view.shape[0];
    }
    return found;
  }

  void forward(const std::map<std::string, ArrayView>& fields, std::int64_t first,
               std::int64_t count) {
    context.rows = count;
    stage->begin_run();
    stage->begin_batch(0);
    for (const StageFeed& feed : stage->plan().feeds) {
      const auto* const data = static_cast<const std::byte*>(fields.at(feed.field).data);
      stage->feed(feed, 0, data + feed.loc.stride / rows * first);
    }
    stage->end_batch(0);
    stage->run(Kind::Forward, 0);
    device->queue().record().wait();
  }

  const std::int64_t rows;
  const Graph graph;
  const Schedule plan;
  StepContext context;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;
};

Predictor::Predictor(const std::string& folder, const PredictorOptions& options) {
  require(options.rows >= 0 && options.threads >= 0,
          "predictor: rows {} and threads {} must be at least 0", options.rows, options.threads);
  if (options.threads > 0) set_threads(options.threads);
  impl_ = std::make_unique<Impl>(read_model(folder), options);
}

Predictor::~Predictor() = default;

const Graph& Predictor::graph() const { return impl_->graph; }

std::int64_t Predictor::rows() const { return impl_->rows; }

std::map<std::string, Array> Predictor::predict(const std::map<std::string, ArrayView>& fields) {
  const std::int64_t rows = impl_->check(fields);
  const std::vector<StageFetch>& fetches = impl_->stage->plan().fetches;
  std::map<std::string, Array> out;
  for (const StageFetch& fetch : fetches) {
    const TensorType& type = impl_->graph.values[fetch.value].type;
    Array& array = out[fetch.name];
    array.dtype = type.dtype;
    array.shape = type.shape;
    array.shape[0] *= -rows;
    array.bytes.reserve(static_cast<std::size_t>(fetch.bytes / impl_->rows * rows));
  }
  for (std::int64_t first = 0; first < rows; first += impl_->rows) {
    impl_->forward(fields, first, std::min(impl_->rows, rows - first));
    for (std::size_t f = 0; f < fetches.size(); ++f) {
      const std::byte* const data = impl_->stage->fetched_bytes(f, 0);
      std::vector<std::byte>& bytes = out[fetches[f].name].bytes;
      bytes.insert(bytes.end(), data, data + impl_->stage->bytes_fetched(f, 0));
    }
  }
  return out;
}

}  // namespace hetu
