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
#include "graph/passes/dead.h"
#include "graph/passes/fuse_attention.h"
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
                  ? channels_last(fused(model.graph, backend(options.device).fuses), op_set())
                  : std::move(model.graph)),
        plan(forward_plan()),
        device(open_device(options.device)) {
    context.plan = &plan;
    context.training = false;
    auto compiled =
        std::make_unique<StagePlan>(compile_stage(graph, compile_options(rows, options)));
    stage = std::make_unique<Stage>(graph, std::move(compiled), 0, context, *device, 1);
    load_checkpoint(model.weights, state_of(graph, *stage, OptimizerConfig::Kind::Sgd, *device));
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
      if (from_output.count(name) != 0) {
        require(field == fields.end(), "field '{}' is carried, and not given", name);
        continue;
      }
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
    require(found >= 0, "no field is given, so that the number of rows is not known");
    return found;
  }

  void forward(const std::map<std::string, ArrayView>& fields, std::int64_t first,
               std::int64_t count) {
    context.rows = count;
    stage->begin_run();
    stage->begin_batch(0);
    for (const StageFeed& feed : stage->plan().feeds) {
      if (const auto carried = from_output.find(feed.field); carried != from_output.end()) {
        const std::vector<std::byte> zeros(is_fresh ? feed.loc.stride : 0);
        if (is_fresh) stage->feed(feed, 0, zeros.data());
        device->queue().record().wait();
        continue;
      }
      const auto* const data = static_cast<const std::byte*>(fields.at(feed.field).data);
      stage->feed(feed, 0, data + feed.loc.stride / rows * first);
    }
    stage->end_batch(0);
    stage->run(Kind::Forward, 0);
    for (const StageFeed& feed : stage->plan().feeds) {
      const auto carried = from_output.find(feed.field);
      if (carried == from_output.end()) continue;
      const StageFetch& from = stage->plan().fetches[carried->second];
      device->queue().copy(stage->memory().at(feed.loc, 0), stage->memory().at(from.loc, 0),
                           from.bytes);
    }
    device->queue().record().wait();
    is_fresh = false;
  }

  bool is_carried(std::size_t fetch) const {
    return std::any_of(from_output.begin(), from_output.end(),
                       [fetch](const auto& carried) { return carried.second == fetch; });
  }

  // The state is that of as many rows as the calls before had.
  void check_carried(std::int64_t count) {
    if (from_output.empty()) return;
    require(count <= rows,
            "{} rows, and a predictor that carries a field computes {} at once: load it with "
            "rows={} or more",
            count, rows, count);
    require(is_fresh || count == carried_rows,
            "{} rows, and what is carried is of {}: give as many, or reset() it", count,
            carried_rows);
    carried_rows = count;
  }

  const std::int64_t rows;
  const Graph graph;
  const Schedule plan;
  StepContext context;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;
  std::map<std::string, std::size_t> from_output;  // fields that are carried: number of the fetch
  bool is_fresh = true;                            // nothing is carried yet
  std::int64_t carried_rows = 0;
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

void Predictor::carry(const std::string& output, const std::string& field) {
  const Graph& graph = impl_->graph;
  const auto to = std::find_if(graph.placeholders.begin(), graph.placeholders.end(),
                               [&](ValueId v) { return graph.producer(v).name == field; });
  require(to != graph.placeholders.end(), "the model reads no field '{}'", field);
  require(impl_->from_output.count(field) == 0, "field '{}' is carried already", field);
  const TensorType& from = graph.values[fetched_values(graph, {output})[0]].type;
  require(from == graph.values[*to].type,
          "output '{}' is {}, field '{}' {}: they cannot be carried", output, to_string(from),
          field, to_string(graph.values[*to].type));
  const std::vector<StageFetch>& fetches = impl_->stage->plan().fetches;
  for (std::size_t f = 0; f < fetches.size(); ++f) {
    if (fetches[f].name != output) continue;
    impl_->from_output[field] = f;
    impl_->stage->leave_there(f);
  }
  reset();
}

void Predictor::reset() { impl_->is_fresh = true; }

std::map<std::string, Array> Predictor::predict(const std::map<std::string, ArrayView>& fields) {
  const std::int64_t rows = impl_->check(fields);
  impl_->check_carried(rows);
  const std::vector<StageFetch>& fetches = impl_->stage->plan().fetches;
  std::map<std::string, Array> out;
  std::vector<std::size_t> given;
  for (std::size_t f = 0; f < fetches.size(); ++f) {
    if (impl_->is_carried(f)) continue;
    given.push_back(f);
    const StageFetch& fetch = fetches[f];
    const TensorType& type = impl_->graph.values[fetch.value].type;
    Array& array = out[fetch.name];
    array.dtype = type.dtype;
    array.shape = type.shape;
    array.shape[0] *= -rows;
    array.bytes.reserve(static_cast<std::size_t>(fetch.bytes / impl_->rows * rows));
  }
  for (std::int64_t first = 0; first < rows; first += impl_->rows) {
    impl_->forward(fields, first, std::min(impl_->rows, rows - first));
    for (const std::size_t f : given) {
      const std::byte* const data = impl_->stage->fetched_bytes(f, 0);
      std::vector<std::byte>& bytes = out[fetches[f].name].bytes;
      bytes.insert(bytes.end(), data, data + impl_->stage->bytes_fetched(f, 0));
    }
  }
  return out;
}

}  // namespace hetu
