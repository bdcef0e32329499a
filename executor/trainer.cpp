#include "executor/trainer.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "executor/block_times.h"
#include "executor/comm/collective.h"
#include "executor/comm/inproc.h"
#include "executor/comm/tag_kinds.h"
#include "executor/gather.h"
#include "executor/host_memory.h"
#include "executor/run_trace.h"
#include "executor/sum_speed.h"
#include "graph/base/error.h"
#include "graph/op_def.h"
#include "graph/passes/channels_last.h"
#include "graph/passes/fuse_norm.h"
#include "ops/registry.h"
#include "pipeline/generate.h"
#include "pipeline/partition.h"

namespace hetu {
std::vector<int> balance_stages(const Graph& graph, int stages) {
  return balance_blocks(block_flops(graph), stages);
}

int default_micro_batches(const std::string& method) {
  Sizes sizes;
  sizes.stages = sizes.micro_batches = 2;
  const Method* known = find_method(method);
  if (known != nullptr && !is_legal(*known, sizes)) return 4;
  const Schedule plan = generate(method, sizes);
  const std::vector<Instr> row = unroll(plan.workers.front());
  const auto updates =
      std::count_if(row.begin(), row.end(), [](const Instr& i) { return i.kind == Kind::Update; });
  return updates > 1 ? 1 : 4;
}

namespace {

// Workers of one pipeline.
int width_of(const TrainerOptions& options) {
  const std::vector<int>& each = options.replicas;
  return each.empty() ? options.stages : std::accumulate(each.begin(), each.end(), 0);
}

// Pipelines whose workers have links to each other.
int linked_of(const TrainerOptions& options) {
  return options.averaging && options.averaging->apart ? 1 : options.pipelines;
}

}  // namespace

double StepResult::at(const std::string& name) const {
  std::string known;
  for (const NamedScalar& s : scalars) {
    if (s.name == name) return s.value;
    known += (known.empty() ? "" : ", ") + s.name;
  }
  fail(Code::InvalidArgument, "no result '{}' in a step; there are: {}", name, known);
}

Trainer::Trainer(Graph graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
                 comm::Transport& transport, Stop /*planned*/)
    : graph_(std::move(graph)),
      optimizer_(optimizer),
      options_(options),
      transport_(transport),
      reducer_(transport) {
  check_optimizer(optimizer_);
  const std::vector<int>& replicas = options_.replicas;
  require(replicas.empty() ||
              (static_cast<int>(replicas.size()) == options_.stages && options_.pipelines == 1),
          "{} numbers of replicas for {} stages in {} pipelines: one number per stage wanted, in 1 "
          "pipeline",
          replicas.size(), options_.stages, options_.pipelines);
  const int width = width_of(options_), workers = linked_of(options_) * width;
  const bool apart = options_.averaging && options_.averaging->apart;
  linked_ = linked_of(options_);
  require(options_.pipelines >= 1 && options_.stages >= 1 && workers == transport.workers(),
          "{} pipelines of {} stages need {} workers, but {} were started", linked_,
          options_.stages, workers, transport.workers());
  require(options_.micro_batches >= 1, "micro-batches must be >= 1, got {}",
          options_.micro_batches);
  require(options_.batch_size >= 1 && options_.batch_size % options_.micro_batches == 0,
          "batch size {} is not divided by {} micro-batches; choose a multiple of {}",
          options_.batch_size, options_.micro_batches, options_.micro_batches);
  require(!graph_.gradients.empty(),
          "the graph has no gradients: differentiate a loss before training");
  if (options_.kernels == KernelChoice::Best) graph_ = channels_last(fuse_norm(graph_), op_set());
  pipeline_ = apart ? options_.averaging->apart->pipeline : transport.worker() / width;
  row_ = transport.worker() % width;
  if (options_.threads > 0) omp_set_num_threads(options_.threads);
  plan();
}

Trainer::Trainer(Graph graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
                 comm::Transport& transport)
    : Trainer(std::move(graph), optimizer, options, transport, Stop::Planned) {
  if (options_.averaging) join_groups();
  check_hosts();
  build();
  comm::barrier(transport_, comm::everyone(transport_),
                {comm::make_tag(kStartTag, 0, 0, 0, 0), "the start of training"});
  origin_ns_ = comm::now_ns();
}

// Every pipeline is like the first.
std::int64_t Trainer::check(const Graph& graph, const OptimizerConfig& optimizer,
                            const TrainerOptions& options) {
  const int width = std::max(1, width_of(options));
  const auto links = comm::make_inproc(std::max(1, linked_of(options)) * width);
  std::int64_t most = 0;
  for (int row = 0; row < width; ++row) {
    const Trainer planned(graph, optimizer, options, *links[row], Stop::Planned);
    most = std::max(most, planned.memory_.peak());
  }
  return most;
}

Trainer::~Trainer() = default;

void Trainer::feed(const FieldLookup& lookup) {
  const auto& fields = runner_->fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const void* data = lookup(fields[i].feed->field, fields[i].bytes);
    require(data != nullptr, "the batch has no field '{}', which stage {} reads",
            fields[i].feed->field, stages_text());
    runner_->feed(static_cast<int>(i), data);
  }
}

std::vector<SavePart> Trainer::save_parts() const {
  std::vector<SavePart> parts;
  for (const StageHere& here : stages_) {
    if ((pipeline_ != 0 && linked_ > 1) || !here.is_first_copy) continue;
    SavePart part{fmt::format("stage-{}.safetensors", here.stage), {}};
    for (StateTensor& t : runner_->state(here.placement)) {
      if (t.owner) part.tensors.push_back(std::move(t));
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

void Trainer::log_state(TensorLog& log, TensorRecord::What what) const {
  const bool weights = what == TensorRecord::What::Weight;
  for (const StageHere& here : stages_) {
    for (const StateTensor& t :
         weights ? runner_->state(here.placement) : runner_->gradients(here.placement))
      if (!weights || t.state.empty()) log.add(what, t.name, here.stage, t.data, t.elements);
  }
}

ActivationPeak Trainer::planned_peak() const {
  std::vector<std::int64_t> saved(lowered_.placements.size(), 0);
  for (std::size_t i = 0; i < stages_.size(); ++i) saved[stages_[i].placement] = stages_[i].saved;
  return hetu::planned_peak(lowered_, row_, saved);
}

std::string Trainer::stages_text() const {
  std::string text;
  for (const StageHere& here : stages_)
    text += fmt::format("{}{}", text.empty() ? "" : " and ", here.stage);
  return text;
}

void Trainer::ask_to_stop() {
  if (averager_) {
    asks_to_stop_ = true;
    averager_->stop_soon();
  } else if (runs_) {
    runs_->ask_to_stop();
  } else {
    runner_->ask_to_stop();
  }
}

StepResult Trainer::train(const FieldLookup& lookup) {
  if (runs_) {
    begin_run(1);
    return *next([&] { return lookup; });
  }
  runner_->set_source([&] { feed(lookup); });
  runner_->set_training(true);
  training_->run_step(static_cast<int>(step_), trace_.get());
  StepResult result;
  result.step = step_++;
  result.scalars = runner_->scalars();
  result.gradient_norm = runner_->gradient_norm();
  result.stop_asked = runner_->stop_asked();
  result.learning_rate = optimizer_.rate.at(runner_->updates());
  result.last = run_left_ == 0;
  result.batches = options_.pipelines;
  return result;
}

void Trainer::begin_run(std::int64_t steps) {
  require(run_left_ == 0, "a run is under way: {} of its steps are to come", run_left_);
  require(steps >= 1, "a run has at least one step, got {}", steps);
  run_left_ = steps;
  if (!runs_) return;
  require(steps < std::numeric_limits<int>::max() / options_.micro_batches,
          "a run of {} steps is too long; drain in between", steps);
  validation_->finish();
  runner_->set_training(true);
  if (averager_) return begin_averaged_run(steps);
  const Schedule plan = lowered_for(static_cast<int>(steps));
  verify(plan);
  runs_->begin(plan, static_cast<int>(step_), static_cast<int>(steps), trace_.get());
  if (trace_) recorded_.push_back({static_cast<int>(step_), plan});
}

std::optional<StepResult> Trainer::next(const BatchSource& batches) {
  if (run_left_ == 0) return std::nullopt;
  if (!runs_) {
    --run_left_;
    const StepResult result = train(fields_.empty() ? FieldLookup() : batches());
    if (result.stop_asked) run_left_ = 0;
    return result;
  }
  runner_->set_source([&] { feed(batches()); });
  std::optional<StepReport> report = runs_->next_report();
  for (; !report; report = runs_->next_report()) HETU_ASSERT(runs_->advance());
  step_ = report->step + 1;
  if (!averager_) --run_left_;
  if (runs_->is_last(report->step)) end_run();
  StepResult result = result_of(*report);
  if (averager_) count_batches(result);
  return result;
}

// Drains, and knows how long the run has been.
void Trainer::end_run() {
  while (runs_->advance()) {
  }
  run_left_ = 0;
  if (averager_) {
    runner_->end_averaged_run();
    stop_asked_ = any_asks_to_stop();
    step_ = stop_asked_ ? std::min(run_end_, run_begin_ + mean_updates()) : run_end_;
    asks_to_stop_ = false;
  }
  runner_->set_updates(step_);
  if (trace_) recorded_.back().plan = with_steps(recorded_.back().plan, runs_->steps());
}

StepResult Trainer::result_of(const StepReport& report) const {
  const bool chief = runs_->is_chief();
  StepResult result;
  result.step = report.step;
  for (std::size_t f = 0; f < graph_.fetches.size(); ++f)
    result.scalars.push_back({graph_.fetches[f].first, chief ? report.fetches[f] : std::nan("")});
  result.gradient_norm = chief ? std::sqrt(report.squares) : std::nan("");
  result.learning_rate = optimizer_.rate.at(report.step + 1);
  result.last = runs_->is_last(report.step);
  result.stop_asked = result.last && (runs_->is_stopped() || stop_asked_);
  result.batches = options_.pipelines;
  return result;
}

StepResult Trainer::validate(const FieldLookup& lookup) {
  require(!runs_ || run_left_ == 0,
          "validation wants a drained pipeline, and {} steps of this run are to come: end the run "
          "where you validate",
          run_left_);
  if (training_) training_->finish();
  runner_->set_source([&] { feed(lookup); });
  runner_->set_training(false);
  const std::vector<float> own = runner_->buffers();
  runner_->average_buffers();
  validation_->run_step(static_cast<int>(step_), nullptr);
  validation_->finish();
  runner_->set_buffers(own);
  StepResult result;
  result.step = step_;
  result.scalars = runner_->scalars();
  result.batches = linked_;
  return result;
}

void Trainer::set_step(std::int64_t step) {
  step_ = step;
  runner_->set_updates(step);
  if (averager_) averager_->set_done(step);
}

void Trainer::set_rate_factor(double factor) {
  optimizer_.rate.factor = factor;
  check_rate(optimizer_.rate);
  runner_->set_rate_factor(factor);
}

void Trainer::record(bool on) {
  if (on && !trace_) {
    trace_ = std::make_unique<TraceRecorder>();
    blocks_ = std::make_unique<BlockTimes>(graph_);
  }
  if (!on) {
    trace_.reset();
    blocks_.reset();
  }
  runner_->time_blocks(blocks_.get());
}

void Trainer::write_trace(const std::string& path) {
  require(trace_ != nullptr, "nothing was recorded: call record(true) before the steps");
  // Where pipelines are apart, each has the events of its own workers, and the first one writes.
  const Trace mine{trace_->events(transport_.worker(), origin_ns_),
                   fmt::format(R"({{"blocks":{}}})", blocks_->json())};
  trace_->clear();
  const double sum_ms = sum_ms_per_byte(transport_, reducer_);
  const auto what = [] { return std::string("the traces of all workers"); };
  const std::vector<std::string> texts =
      gather_texts(trace_to_json(mine), transport_, {comm::make_tag(kTraceTag, 0, 0, 0, 0), what});
  if (transport_.worker() == 0 && (linked_ > 1 || in_first_pipeline())) {
    Trace all;
    std::vector<std::string> blocks;
    for (const std::string& text : texts) {
      const Trace one = trace_from_json(text, "a worker's trace");
      blocks.push_back(blocks_in(one));
      all.events.insert(all.events.end(), one.events.begin(), one.events.end());
    }
    const std::vector<PlannedRun> runs =
        runs_ ? std::exchange(recorded_, {}) : runs_by_step(all, lowered_);
    const ModelBlocks model{block_costs(graph_, blocks,
                                        {options_.batch_size / options_.micro_batches,
                                         optimizer_states(optimizer_.kind), sum_ms}),
                            options_.first_block};
    write_beside(path, trace_to_json(with_prediction(std::move(all), runs, model)));
  }
}

}  // namespace hetu
