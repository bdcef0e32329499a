#include "executor/trainer.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "executor/comm/collective.h"
#include "executor/comm/tag_kinds.h"
#include "executor/gather.h"
#include "executor/host_memory.h"
#include "executor/run_trace.h"
#include "graph/base/error.h"
#include "graph/base/log.h"
#include "graph/op_def.h"
#include "graph/passes/channels_last.h"
#include "graph/passes/fuse_norm.h"
#include "ops/registry.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/partition.h"
#include "pipeline/verify.h"

namespace hetu {
namespace {

double flops(const Graph& graph, const Node& node) {
  if (op_set().has(node.op)) {
    const OpDef& def = op_set().find(node.op);
    std::vector<TensorType> inputs;
    for (const ValueId v : node.inputs) inputs.push_back(graph.values[v].type);
    if (def.flops) return static_cast<double>(def.flops({def, node.name, inputs, node.attrs}));
  }
  double elements = 0;
  for (const ValueId v : node.outputs) {
    elements += static_cast<double>(element_count(bind_batch(graph.values[v].type.shape, 1)));
  }
  return elements;
}

// Only forwards: what validation runs.
Schedule forward_only(Schedule schedule) {
  for (Program& program : schedule.workers) {
    for (auto* part : {&program.prologue, &program.body, &program.drain}) {
      part->erase(std::remove_if(part->begin(), part->end(),
                                 [](const Instr& i) { return i.kind != Kind::Forward; }),
                  part->end());
    }
  }
  return schedule;
}

void drop_updates(std::vector<Action>& row) {
  row.erase(std::remove_if(row.begin(), row.end(),
                           [](const Action& a) {
                             return a.instr.kind == Kind::Update ||
                                    a.instr.kind == Kind::ReduceGrad;
                           }),
            row.end());
}

// What a plan asks for that training does not do yet, or nullptr.
const char* untrainable(const Schedule& plan) {
  if (plan.version_rule == VersionRule::Wave) return "its versions go by waves";
  const auto stages = static_cast<std::size_t>(model_stages(plan));
  if (plan.placements.size() != plan.workers.size() ||
      (plan.replica_rule == ReplicaRule::Whole && stages != plan.workers.size()))
    return "it has several stages on a worker";
  if (holds(plan, Kind::Recompute)) return "it recomputes";
  return nullptr;
}

// A plan that updates within itself must do so once per step, so that steps count updates.
void check_updates(const Schedule& plan, const VerifyReport& report) {
  for (const StageNeeds& needs : report.stages) {
    const int each = std::max(1, total_micros(plan) / std::max(1, needs.updates));
    require(needs.updates == plan.steps,
            "'{}' updates {} times per step of {} micro-batches; training counts one update per "
            "step: give it {} micro-batch(es) per step",
            plan.method, needs.updates / plan.steps, plan.micro_batches, each);
  }
}

Shape sample_shape(const StageFeed& feed, std::int64_t micro_batch) {
  require(!feed.type.shape.empty() && feed.type.shape[0] == micro_batch,
          "field '{}' must have the batch as its first dimension, got {}", feed.field,
          to_string(feed.type));
  return {feed.type.shape.begin() + 1, feed.type.shape.end()};
}

}  // namespace

std::vector<int> balance_stages(const Graph& graph, int stages) {
  std::vector<double> costs(graph.blocks, 0);
  for (const Node& node : graph.nodes) {
    if (is_leaf(node)) continue;
    costs[node.block] += flops(graph, node);
  }
  return balance_blocks(costs, stages);
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

double StepResult::at(const std::string& name) const {
  std::string known;
  for (const NamedScalar& s : scalars) {
    if (s.name == name) return s.value;
    known += (known.empty() ? "" : ", ") + s.name;
  }
  fail(Code::InvalidArgument, "no result '{}' in a step; there are: {}", name, known);
}

Trainer::Trainer(Graph graph, const OptimizerConfig& optimizer, const TrainerOptions& options,
                 comm::Transport& transport)
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
  const int width =
      replicas.empty() ? options_.stages : std::accumulate(replicas.begin(), replicas.end(), 0);
  const int workers = options_.pipelines * width;
  require(options_.pipelines >= 1 && options_.stages >= 1 && workers == transport.workers(),
          "{} pipelines of {} stages need {} workers, but {} were started", options_.pipelines,
          options_.stages, workers, transport.workers());
  require(options_.micro_batches >= 1, "micro-batches must be >= 1, got {}",
          options_.micro_batches);
  require(options_.batch_size >= 1 && options_.batch_size % options_.micro_batches == 0,
          "batch size {} is not divided by {} micro-batches; choose a multiple of {}",
          options_.batch_size, options_.micro_batches, options_.micro_batches);
  require(!graph_.gradients.empty(),
          "the graph has no gradients: differentiate a loss before training");
  if (options_.kernels == KernelChoice::Best) graph_ = channels_last(fuse_norm(graph_), op_set());
  pipeline_ = transport.worker() / width;
  row_ = transport.worker() % width;
  if (options_.threads > 0) omp_set_num_threads(options_.threads);
  if (options_.first_block.empty()) options_.first_block = balance_stages(graph_, options_.stages);
  plan();
  comm::barrier(transport_, comm::everyone(transport_),
                {comm::make_tag(kStartTag, 0, 0, 0, 0), "the start of training"});
  origin_ns_ = comm::now_ns();
}

Trainer::~Trainer() = default;

Schedule Trainer::compute_plan(int steps) const {
  Sizes sizes;
  sizes.stages = options_.stages;
  sizes.micro_batches = options_.micro_batches;
  sizes.steps = steps;
  sizes.replicas = options_.replicas;
  Schedule compute = options_.plan ? *options_.plan : generate(options_.method, sizes);
  if (options_.plan && steps > compute.steps) compute = with_steps(compute, steps);
  const char* why = untrainable(compute);
  require(why == nullptr,
          "training by '{}' is to come: {}; it can be simulated and rehearsed; here now: methods "
          "with one stage per worker and one weight version, or those of PipeDream",
          compute.method, why);
  const int width = transport_.workers() / options_.pipelines;
  require(model_stages(compute) == options_.stages &&
              compute.micro_batches == options_.micro_batches &&
              static_cast<int>(compute.workers.size()) == width,
          "the schedule is for {} stages on {} workers and {} micro-batches; the job has {} stages "
          "on {} workers and {} micro-batches",
          model_stages(compute), compute.workers.size(), compute.micro_batches, options_.stages,
          width, options_.micro_batches);
  return compute;
}

// The plan of a run of `steps` steps of a method that updates within itself: as long as it needs to
// be for every row to have its body, and by whole repetitions shorter than the run.
Schedule Trainer::lowered_for(int steps) const {
  const int least = 2 * static_cast<int>(lowered_.workers.size()) + 2;
  if (steps <= least) return lower(compute_plan(steps), how_);
  const int grain = run_grain(compute_plan(least));
  if (grain == 0) return lower(compute_plan(steps), how_);
  return lower(compute_plan(least + (steps - least) % grain), how_);
}

void Trainer::plan() {
  how_.pipelines = options_.pipelines;
  for (const StagePair& edge : stage_edges(graph_, options_.first_block)) {
    if (edge.second != edge.first + 1) how_.extra_edges.push_back(edge);
  }
  how_.tied = tied_stages(graph_, options_.first_block);
  const Schedule one = compute_plan(1);
  const bool repeated = holds(one, Kind::Update);
  how_.reduce_scalars = !repeated;
  // Long enough for every version and copy that a run of any length needs.
  lowered_ = repeated ? lower(compute_plan(4 * one.stages + 4), how_) : lower(one, how_);
  const VerifyReport report = verify(lowered_);
  if (repeated) {
    check_updates(lowered_, report);
    warn_of_ties();
  }
  std::vector<std::unique_ptr<StagePlan>> plans = compile(report);
  check_memory();
  check_host_memory(transport_, memory_.peak(), comm::make_tag(kStartTag, 0, 0, 1, 0));

  RunnerOptions run;
  run.pipeline = pipeline_;
  run.pipelines = options_.pipelines;
  run.plan = &lowered_;
  run.workers_per_pipeline = static_cast<int>(lowered_.workers.size());
  run.micro_batches = options_.micro_batches;
  run.micro_ids = options_.micro_batches;
  if (repeated) {
    run.repeated = true;
    for (const StageNeeds& needs : report.stages)
      run.micro_ids = std::max(run.micro_ids,
                               2 * one.stages * (needs.live_copies + options_.micro_batches) + 16);
  }
  run.seed = options_.seed;
  runner_ = std::make_unique<TrainRunner>(graph_, std::move(plans), optimizer_, run, transport_);
  const Interpreter::Links links{transport_, reducer_};
  if (repeated) {
    runs_ = std::make_unique<RepeatedRun>(*runner_, links, graph_.fetches.size());
  } else {
    training_ = std::make_unique<Interpreter>(
        bind_row(lowered_, transport_.worker(), options_.pipelines), *runner_, links);
  }
  // Validation's rows: the forwards of the plan, lowered alike; no updates.
  Lowering how = how_;
  how.reduce_scalars = true;
  Row row = bind_row(lower(forward_only(one), how), transport_.worker(), options_.pipelines);
  for (auto* part : {&row.prologue, &row.body, &row.drain}) drop_updates(*part);
  validation_ = std::make_unique<Interpreter>(std::move(row), *runner_, links);
}

void Trainer::warn_of_ties() const {
  for (const StagePair& tie : how_.tied) {
    if (transport_.worker() == 0)
      log(Level::Warning,
          "stages {} and {} share a weight: each update waits for both, so that stages stand idle; "
          "untie it to run '{}' without stalls",
          tie.first, tie.second, lowered_.method);
  }
}

// The stages of this worker, by placement; the others' places stay empty.
std::vector<std::unique_ptr<StagePlan>> Trainer::compile(const VerifyReport& report) {
  std::vector<std::unique_ptr<StagePlan>> plans(lowered_.placements.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Placement& placement = lowered_.placements[i];
    if (placement.workers[0] != row_) continue;
    stage_ = placement.model_stage;
    is_first_copy_ = placement.replica == 0;
    CompileOptions compile;
    compile.first_block = options_.first_block;
    compile.stage = placement.model_stage;
    compile.micro_batch = options_.batch_size / options_.micro_batches;
    compile.micro_batches = options_.micro_batches;
    compile.saved_copies = std::max(1, report.stages[i].live_copies);
    compile.held_copies = report.stages[i].split_copies + (holds(lowered_, Kind::Backward) ? 1 : 0);
    compile.split_backward = holds(lowered_, Kind::InputGrad);
    if (holds(lowered_, Kind::Update) && !how_.reduce_scalars) {
      compile.weight_copies = report.stages[i].weight_versions;
      compile.feed_slots = compile.saved_copies - 1 + options_.micro_batches;
    }
    compile.optimizer_states = optimizer_states(optimizer_.kind);
    compile.kernels = options_.kernels;
    plans[i] = std::make_unique<StagePlan>(compile_stage(graph_, compile));
    memory_ = plans[i]->memory;
    for (const StageFeed& feed : plans[i]->feeds) {
      fields_.push_back({feed.field, feed.type.dtype, sample_shape(feed, compile.micro_batch)});
    }
  }
  return plans;
}

void Trainer::check_memory() const {
  if (options_.memory_limit == 0 || memory_.peak() <= options_.memory_limit) return;
  fail(Code::InvalidArgument,
       "worker {} (pipeline {}, stage {}) needs {} bytes, over the limit of {}: {}; use more "
       "stages, smaller micro-batches "
       "or a method that keeps fewer activations",
       transport_.worker(), pipeline_, stage_, memory_.peak(), options_.memory_limit,
       to_string(memory_));
}

void Trainer::feed(const FieldLookup& lookup) {
  const auto& fields = runner_->fields();
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const void* data = lookup(fields[i].feed->field, fields[i].bytes);
    require(data != nullptr, "the batch has no field '{}', which stage {} reads",
            fields[i].feed->field, stage_);
    runner_->feed(static_cast<int>(i), data);
  }
}

void Trainer::ask_to_stop() {
  if (runs_)
    runs_->ask_to_stop();
  else
    runner_->ask_to_stop();
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
  return result;
}

void Trainer::begin_run(std::int64_t steps) {
  require(run_left_ == 0, "a run is under way: {} of its steps are to come", run_left_);
  require(steps >= 1, "a run has at least one step, got {}", steps);
  run_left_ = steps;
  if (!runs_) return;
  require(steps < std::numeric_limits<int>::max() / options_.micro_batches,
          "a run of {} steps is too long; drain in between", steps);
  const Schedule plan = lowered_for(static_cast<int>(steps));
  verify(plan);
  validation_->finish();
  runner_->set_training(true);
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
  --run_left_;
  if (runs_->is_last(report->step)) end_run();
  return result_of(*report);
}

// Drains, and knows how long the run has been.
void Trainer::end_run() {
  while (runs_->advance()) {
  }
  run_left_ = 0;
  runner_->set_updates(step_);
  if (trace_) recorded_.back().plan = with_steps(recorded_.back().plan, runs_->steps());
}

StepResult Trainer::result_of(const StepReport& report) const {
  const bool chief = transport_.worker() == 0;
  StepResult result;
  result.step = report.step;
  for (std::size_t f = 0; f < graph_.fetches.size(); ++f)
    result.scalars.push_back({graph_.fetches[f].first, chief ? report.fetches[f] : std::nan("")});
  result.gradient_norm = chief ? std::sqrt(report.squares) : std::nan("");
  result.learning_rate = optimizer_.rate.at(report.step + 1);
  result.stop_asked = runs_->is_stopped() && runs_->is_last(report.step);
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
  return result;
}

void Trainer::set_step(std::int64_t step) {
  step_ = step;
  runner_->set_updates(step);
}

void Trainer::set_rate_factor(double factor) {
  optimizer_.rate.factor = factor;
  check_rate(optimizer_.rate);
  runner_->set_rate_factor(factor);
}

void Trainer::record(bool on) {
  if (on && !trace_) trace_ = std::make_unique<TraceRecorder>();
  if (!on) trace_.reset();
}

void Trainer::write_trace(const std::string& path) {
  require(trace_ != nullptr, "nothing was recorded: call record(true) before the steps");
  const Trace mine{trace_->events(transport_.worker(), origin_ns_)};
  trace_->clear();
  const auto what = [] { return std::string("the traces of all workers"); };
  const std::vector<std::string> texts =
      gather_texts(trace_to_json(mine), transport_, {comm::make_tag(kTraceTag, 0, 0, 0, 0), what});
  if (transport_.worker() == 0) {
    Trace all;
    for (const std::string& text : texts) {
      const Trace one = trace_from_json(text, "a worker's trace");
      all.events.insert(all.events.end(), one.events.begin(), one.events.end());
    }
    const std::vector<PlannedRun> runs =
        runs_ ? std::exchange(recorded_, {}) : runs_by_step(all, lowered_);
    write_beside(path, trace_to_json(with_prediction(std::move(all), runs)));
  }
}

}  // namespace hetu
