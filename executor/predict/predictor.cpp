// A predictor compiles the saved graph as one stage of a plan with one worker and one forward, and
// runs it on up to `rows` samples at a time. Kernels and micro-batch size are those of training,
// and so are the bits.
//
// Carried fields stay in the stage's memory between calls. After a forward, hand_on() copies an
// output into the memory of its field: all of it (carry), or after the entries in use (keep). With
// keep and outputs of 1 entry, a field of 4 entries goes from [a 0 0 0] to [a b 0 0]. The number of
// entries in use changes only after the device has finished, so that a failed call can be repeated.
#include "executor/predict/predictor.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/machine_cores.h"
#include "executor/device/fork_gate.h"
#include "executor/device/threads.h"
#include "executor/predict/saved_model.h"
#include "executor/stage/stage.h"
#include "executor/stage/stage_tensors.h"
#include "graph/passes/channels_last.h"
#include "graph/passes/dead.h"
#include "graph/passes/fuse.h"
#include "ops/registry.h"

namespace hetu {
// The namespace is named because GCC warns of anonymous types in a class in a unity build.
inline namespace predictor_parts {

// Returns the plan of one worker with one forward.
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

// A carried field: where its value comes from, and where it is stored between calls.
struct Carried {
  std::size_t fetch = 0;  // index of the output that provides the value
  // True if outputs are appended along axis 1 (keep), false if they replace the value (carry).
  bool is_kept = false;
  // Entries along axis 1, for kept fields: appended per call, capacity, in use.
  std::int64_t step = 0, most = 0, places = 0;
  // Initial value for the next call, if the value is not yet in the stage's memory.
  std::vector<std::byte> start;
  const void* held = nullptr;  // address of the value after the previous call
};

}  // namespace predictor_parts

struct Predictor::Impl {
  Impl(SavedModel model, const PredictorOptions& options, int count)
      : thread_count(count),
        rows(options.rows > 0 ? options.rows : model.rows),
        graph(options.kernels == KernelChoice::Best ? channels_last(fused(model.graph), op_set())
                                                    : std::move(model.graph)),
        plan(forward_plan()),
        device(open_device(options.device)) {
    context.plan = &plan;
    context.training = false;
    auto compiled =
        std::make_unique<StagePlan>(compile_stage(graph, compile_options(rows, options)));
    stage = std::make_unique<Stage>(graph, std::move(compiled), 0, context, *device,
                                    Stage::Exchanged{});
    load_checkpoint(model.weights, state_of(graph, *stage, OptimizerConfig::Kind::Sgd, *device));
  }

  // Checks the fields, and returns the number of rows that all of them have.
  std::int64_t check(const std::map<std::string, ArrayView>& fields) const {
    std::string known;
    for (const ValueId v : graph.placeholders)
      known += fmt::format("{}'{}' {}", known.empty() ? "" : ", ", graph.producer(v).name,
                           to_string(graph.values[v].type));
    for (const auto& [name, view] : fields)
      require(
          std::any_of(graph.placeholders.begin(), graph.placeholders.end(),
                      [&, &field = name](ValueId v) { return graph.producer(v).name == field; }),
          "the model reads no field '{}'; it reads {}", name, known);
    std::int64_t found = -1;
    for (const ValueId v : graph.placeholders) {
      const std::string& name = graph.producer(v).name;
      const auto field = fields.find(name);
      if (from_output.count(name) != 0) {
        require(field == fields.end(),
                "field '{}' is carried between calls, so it must not be given", name);
        continue;
      }
      require(field != fields.end(), "field '{}' is missing; the model reads {}", name, known);
      const TensorType& type = graph.values[v].type;
      const ArrayView& view = field->second;
      const bool same_rows = view.shape.size() == type.shape.size() &&
                             std::equal(view.shape.begin() + 1, view.shape.end(),
                                        type.shape.begin() + 1, type.shape.end());
      require(view.dtype == type.dtype && same_rows, "field '{}' is {}, but the model reads {}",
              name, to_string(TensorType{view.dtype, view.shape}), to_string(type));
      require(found < 0 || found == view.shape[0],
              "field '{}' has {} rows, but another field has {}", name, view.shape[0], found);
      require(view.data != nullptr || element_count(view.shape) == 0,
              "field '{}' is {}, but its pointer to the elements is null", name,
              to_string(TensorType{view.dtype, view.shape}));
      found = view.shape[0];
    }
    require(found >= 0,
            "no field is given, so the number of rows is unknown; give at least one field");
    return found;
  }

  void forward(const std::map<std::string, ArrayView>& fields, std::int64_t first,
               std::int64_t count) {
    context.rows = count;
    context.first_micro = static_cast<int>(first / rows);  // errors name the row of the call
    stage->begin_run();
    stage->begin_batch(0);
    for (const StageFeed& feed : stage->plan().feeds) {
      if (const auto found = from_output.find(feed.field); found != from_output.end()) {
        std::vector<std::byte>& start = found->second.start;
        if (is_fresh) start.assign(feed.loc.stride, std::byte{0});
        if (!start.empty()) stage->feed(feed, 0, start.data());
        continue;
      }
      const auto* const data = static_cast<const std::byte*>(fields.at(feed.field).data);
      stage->feed(feed, 0, data + feed.loc.stride / rows * first);
    }
    stage->end_batch(0);
    stage->run(Kind::Forward, 0);
    for (const StageFeed& feed : stage->plan().feeds) {
      if (const auto carried = from_output.find(feed.field); carried != from_output.end())
        hand_on(feed, carried->second);
    }
    device->queue().record().wait();
    is_fresh = false;
    for (auto& [field, carried] : from_output) {
      carried.start = {};  // kept until here, because a failed call is repeated from it
      if (carried.is_kept) carried.places += carried.step;
    }
  }

  // Restores the state from before a forward() that failed.
  void recover() {
    try {
      device->uploads().recover();
      device->queue().recover();
      context.kept_bytes = 0;
      stage->recover();
    } catch (const std::exception&) {  // the device has failed for good; the next call reports it
    }
  }

  void check_process() const {
    require(device->in_host_memory() || !process.is_forked(),
            "this predictor was loaded in process {}, and device '{}' can't be used in a forked "
            "child. Load the model in the child",
            process.id(), device->name());
  }

  // Runs `work` with exclusive access to the predictor.
  template <class Work>
  auto alone(const Work& work) {
    check_process();
    const NoFork whole;
    const std::lock_guard lock(mutex);
    const ScopedThreadCount while_it_runs(thread_count);
    return work();
  }

  // Copies an output into its field, replacing the value or appending to it.
  void hand_on(const StageFeed& feed, Carried& carried) {
    const StageFetch& from = stage->plan().fetches[carried.fetch];
    auto* const to = static_cast<std::byte*>(stage->memory().at(feed.loc, 0));
    carried.held = to;
    const auto* const data = static_cast<const std::byte*>(stage->memory().at(from.loc, 0));
    if (!carried.is_kept) return device->queue().copy(to, data, from.bytes);
    const std::int64_t row = feed.loc.stride / rows;
    const std::int64_t added = from.bytes / rows;
    const std::int64_t begin = carried.places * (row / carried.most);
    for (std::int64_t r = 0; r < carried_rows; ++r)
      device->queue().copy(to + r * row + begin, data + r * added, added);
  }

  const StageFeed& feed_of(const std::string& field) const {
    const std::vector<StageFeed>& feeds = stage->plan().feeds;
    return *std::find_if(feeds.begin(), feeds.end(),
                         [&](const StageFeed& feed) { return feed.field == field; });
  }

  void take(Impl& other) {
    require(from_output.size() == other.from_output.size(),
            "this predictor carries {} fields, but the other one carries {}", from_output.size(),
            other.from_output.size());
    require(!other.is_fresh && other.carried_rows <= rows,
            "the state to take must have 1 to {} rows, got {}", rows,
            other.is_fresh ? 0 : other.carried_rows);
    for (const auto& [field, carried] : from_output) {
      const auto there = other.from_output.find(field);
      require(there != other.from_output.end() && there->second.start.empty() &&
                  there->second.most == carried.most &&
                  other.feed_of(field).loc.stride / other.rows == feed_of(field).loc.stride / rows,
              "field '{}' of the other predictor is not carried, has another type, or was itself "
              "taken and not used",
              field);
    }
    std::map<std::string, std::vector<std::byte>> found;  // all values, before anything changes
    for (const auto& [field, there] : other.from_output) {
      std::vector<std::byte>& bytes = found[field];
      bytes.resize(other.feed_of(field).loc.stride / other.rows * other.carried_rows);
      other.device->queue().download(bytes.data(), there.held,
                                     static_cast<std::int64_t>(bytes.size()));
    }
    other.device->queue().record().wait();
    for (auto& [field, carried] : from_output) {
      carried.start = std::move(found.at(field));
      carried.places = other.from_output.at(field).places;
    }
    carried_rows = other.carried_rows;
    is_fresh = false;
  }

  // Makes `output` the value of `field` in the next call.
  void bind(const std::string& output, const std::string& field, bool is_kept) {
    const auto to = std::find_if(graph.placeholders.begin(), graph.placeholders.end(),
                                 [&](ValueId v) { return graph.producer(v).name == field; });
    require(to != graph.placeholders.end(), "the model reads no field '{}'", field);
    require(from_output.count(field) == 0, "field '{}' is carried already", field);
    const TensorType& from = graph.values[fetched_values(graph, {output})[0]].type;
    const TensorType& type = graph.values[*to].type;
    TensorType same = from;
    Carried carried;
    if (carried.is_kept = is_kept; is_kept && same.shape.size() > 1 && type.shape.size() > 1) {
      carried.step = from.shape[1];
      carried.most = same.shape[1] = type.shape[1];
    }
    require(same == type && (!is_kept || carried.step > 0),
            "output '{}' is {}, but field '{}' is {}, so the output cannot be {}", output,
            to_string(from), field, to_string(type), is_kept ? "kept" : "carried");
    const std::vector<StageFetch>& fetches = stage->plan().fetches;
    while (fetches.at(carried.fetch).name != output) ++carried.fetch;
    from_output[field] = carried;
    stage->leave_there(carried.fetch);
    reset();
  }

  void reset() {
    is_fresh = true;
    for (auto& [field, carried] : from_output) {
      carried.places = 0;
      carried.start.clear();
    }
  }

  bool is_carried(std::size_t fetch) const {
    return std::any_of(from_output.begin(), from_output.end(),
                       [fetch](const auto& carried) { return carried.second.fetch == fetch; });
  }

  // Checks that a call has as many rows as the carried state, and that kept fields have space for
  // it.
  void check_carried(std::int64_t count) {
    if (from_output.empty()) return;
    require(count <= rows,
            "got {} rows, but a predictor that carries a field computes at most {} at once; load "
            "it with rows={} or more",
            count, rows, count);
    require(is_fresh || count == carried_rows,
            "got {} rows, but the carried state has {}; give as many rows, or call reset()", count,
            carried_rows);
    for (const auto& [field, carried] : from_output)
      require(!carried.is_kept || carried.places + carried.step <= carried.most,
              "field '{}' keeps {} of at most {} positions, and {} more do not fit; call reset()",
              field, carried.places, carried.most, carried.step);
    carried_rows = count;
  }

  std::mutex mutex;
  const OwnProcess process;
  const int thread_count;
  const std::int64_t rows;
  const Graph graph;
  const Schedule plan;
  StepContext context;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stage> stage;
  std::map<std::string, Carried> from_output;  // carried fields by name
  bool is_fresh = true;                        // no state is carried yet
  std::int64_t carried_rows = 0;
};

Predictor::Predictor(const std::string& folder, const PredictorOptions& options)
    : Predictor(read_model(folder), options) {}

Predictor::Predictor(SavedModel model, const PredictorOptions& options) {
  require(options.rows >= 0 && options.threads >= 0,
          "predictor: rows {} and threads {} must be at least 0", options.rows, options.threads);
  watch_forks();
  const NoFork whole;
  const int count =
      options.threads > 0 ? options.threads : std::min(thread_count(), machine_cores());
  const ScopedThreadCount while_made(count);
  impl_ = std::make_unique<Impl>(std::move(model), options, count);
}

Predictor::~Predictor() = default;

const Graph& Predictor::graph() const { return impl_->graph; }

std::int64_t Predictor::rows() const { return impl_->rows; }

void Predictor::carry(const std::string& output, const std::string& field) {
  impl_->alone([&] { impl_->bind(output, field, /*is_kept=*/false); });
}

void Predictor::keep(const std::string& output, const std::string& field) {
  impl_->alone([&] { impl_->bind(output, field, /*is_kept=*/true); });
}

void Predictor::take(const Predictor& other) {
  require(this != &other, "a predictor can't take the state of itself");
  impl_->check_process();
  const NoFork whole;
  const std::scoped_lock lock(impl_->mutex, other.impl_->mutex);
  impl_->take(*other.impl_);
}

void Predictor::reset() {
  impl_->alone([&] { impl_->reset(); });
}

NamedArrays Predictor::predict(const std::map<std::string, ArrayView>& fields) {
  return impl_->alone([&] { return predict_alone(fields); });
}

NamedArrays Predictor::predict_alone(const std::map<std::string, ArrayView>& fields) {
  const std::int64_t rows = impl_->check(fields);
  impl_->check_carried(rows);
  const std::vector<StageFetch>& fetches = impl_->stage->plan().fetches;
  NamedArrays out;
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
    try {
      impl_->forward(fields, first, std::min(impl_->rows, rows - first));
    } catch (...) {
      impl_->recover();
      throw;
    }
    for (const std::size_t f : given) {
      const std::byte* const data = impl_->stage->fetched_bytes(f, 0);
      std::vector<std::byte>& bytes = out[fetches[f].name].bytes;
      bytes.insert(bytes.end(), data, data + impl_->stage->bytes_fetched(f, 0));
    }
  }
  return out;
}

}  // namespace hetu
