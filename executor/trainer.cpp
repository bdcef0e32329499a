#include "executor/trainer.h"

#include <omp.h>

#include <algorithm>

#include "executor/comm/collective.h"
#include "executor/gather.h"
#include "executor/host_memory.h"
#include "executor/run_trace.h"
#include "graph/base/error.h"
#include "graph/op_def.h"
#include "ops/registry.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/partition.h"
#include "pipeline/verify.h"

namespace hetu {
namespace {

constexpr int kStartTag = 43;
constexpr int kTraceTag = 45;

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
      part->erase(std::remove_if(
                      part->begin(), part->end(),
                      [](const Instr& i) { return is_compute(i.kind) && i.kind != Kind::Forward; }),
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
  if (plan.most_versions != 1 || holds(plan, Kind::Update)) return "it updates within a step";
  if (static_cast<int>(plan.placements.size()) != plan.stages || model_stages(plan) != plan.stages)
    return "it has several stages on a worker";
  if (holds(plan, Kind::Recompute)) return "it recomputes";
  return nullptr;
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
  const int workers = options_.pipelines * options_.stages;
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
  pipeline_ = transport.worker() / options_.stages;
  stage_ = transport.worker() % options_.stages;
  if (options_.threads > 0) omp_set_num_threads(options_.threads);
  if (options_.first_block.empty()) options_.first_block = balance_stages(graph_, options_.stages);
  plan();
  comm::Group all(workers);
  for (int w = 0; w < workers; ++w) all[w] = w;
  comm::barrier(transport_, all, {comm::make_tag(kStartTag, 0, 0, 0, 0), "the start of training"});
  origin_ns_ = comm::now_ns();
}

Trainer::~Trainer() = default;

Schedule Trainer::compute_plan() const {
  Sizes sizes;
  sizes.stages = options_.stages;
  sizes.micro_batches = options_.micro_batches;
  Schedule compute = options_.plan ? *options_.plan : generate(options_.method, sizes);
  const char* why = untrainable(compute);
  require(why == nullptr,
          "training by '{}' is to come: {}; it can be simulated and rehearsed; here now: methods "
          "like 1f1b, with one stage per worker and one update per step",
          compute.method, why);
  require(compute.stages == options_.stages && compute.micro_batches == options_.micro_batches,
          "the schedule is for {} workers and {} micro-batches; the job has {} stages and {} "
          "micro-batches",
          compute.stages, compute.micro_batches, options_.stages, options_.micro_batches);
  return compute;
}

void Trainer::plan() {
  const Schedule compute = compute_plan();
  Lowering how;
  how.pipelines = options_.pipelines;
  how.reduce_scalars = true;
  for (const StagePair& edge : stage_edges(graph_, options_.first_block)) {
    if (edge.second != edge.first + 1) how.extra_edges.push_back(edge);
  }
  how.tied = tied_stages(graph_, options_.first_block);
  lowered_ = lower(compute, how);
  std::vector<std::unique_ptr<StagePlan>> plans = compile(verify(lowered_));
  check_memory();
  check_host_memory(transport_, memory_.peak(), comm::make_tag(kStartTag, 0, 0, 1, 0));

  RunnerOptions run;
  run.pipeline = pipeline_;
  run.pipelines = options_.pipelines;
  run.workers_per_pipeline = options_.stages;
  run.micro_batches = options_.micro_batches;
  run.seed = options_.seed;
  for (int s = 0; s < model_stages(lowered_); ++s) {
    run.worker_of_stage.push_back(lowered_.placements[placement_of(lowered_, s, 0)].workers[0]);
  }
  runner_ = std::make_unique<TrainRunner>(graph_, std::move(plans), optimizer_, run, transport_);
  const Interpreter::Links links{transport_, reducer_};
  training_ = std::make_unique<Interpreter>(
      bind_row(lowered_, transport_.worker(), options_.pipelines), *runner_, links);
  // Validation's rows: the forwards of the plan, lowered alike; no updates.
  const Schedule validation = lower(forward_only(compute), how);
  std::vector<Action> row = bind_row(validation, transport_.worker(), options_.pipelines);
  drop_updates(row);
  validation_ = std::make_unique<Interpreter>(std::move(row), *runner_, links);
}

// The stages of this worker, by placement; the others' places stay empty.
std::vector<std::unique_ptr<StagePlan>> Trainer::compile(const VerifyReport& report) {
  std::vector<std::unique_ptr<StagePlan>> plans(lowered_.placements.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Placement& placement = lowered_.placements[i];
    if (placement.workers[0] != stage_) continue;
    CompileOptions compile;
    compile.first_block = options_.first_block;
    compile.stage = placement.model_stage;
    compile.micro_batch = options_.batch_size / options_.micro_batches;
    compile.micro_batches = options_.micro_batches;
    compile.saved_copies = std::max(1, report.stages[i].live_copies);
    compile.held_copies = report.stages[i].split_copies + (holds(lowered_, Kind::Backward) ? 1 : 0);
    compile.split_backward = holds(lowered_, Kind::InputGrad);
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

StepResult Trainer::train(const FieldLookup& lookup) {
  feed(lookup);
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

StepResult Trainer::validate(const FieldLookup& lookup) {
  training_->finish();
  feed(lookup);
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
    write_beside(path, trace_to_json(with_prediction(std::move(all), lowered_)));
  }
}

}  // namespace hetu
