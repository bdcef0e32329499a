// The start of a training job: the plan, its proof, the compiled stages of this worker.
#include <algorithm>

#include "executor/comm/tag_kinds.h"
#include "executor/host_memory.h"
#include "executor/row_needs.h"
#include "executor/trainer.h"
#include "graph/base/error.h"
#include "graph/base/log.h"
#include "pipeline/generate.h"
#include "pipeline/lower.h"
#include "pipeline/run_length.h"
#include "pipeline/simulate.h"

namespace hetu {
namespace {

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
  if (is_asynchronous(plan) && plan.placements.size() != plan.workers.size())
    return "it updates within itself and has several stages on a worker";
  if (plan.run_policy != RunPolicy::AsPlanned && is_asynchronous(plan))
    return "it is reordered at run time and updates within itself";
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

Schedule Trainer::compute_plan(int steps) const {
  Sizes sizes;
  sizes.stages = options_.stages;
  sizes.micro_batches = options_.micro_batches;
  sizes.chunks = options_.chunks;
  sizes.pairs = options_.pairs;
  sizes.concat = options_.concat;
  sizes.with_recompute = options_.with_recompute;
  sizes.steps = steps;
  sizes.replicas = options_.replicas;
  // What a method that goes by costs knows of the model without a measurement.
  const Method* method = options_.plan ? nullptr : find_method(options_.method);
  const bool by_costs = method != nullptr && method->by_costs;
  Costs costs;
  if (by_costs) {
    const int stages = options_.stages * resolved(*method, sizes).chunks;
    if (stages <= graph_.blocks) costs = flop_costs(graph_, stages);
    sizes.costs = &costs;
  }
  Schedule compute = options_.plan ? *options_.plan : generate(options_.method, sizes);
  if (options_.plan && steps > compute.steps) compute = with_steps(compute, steps);
  if (options_.runtime_rule) {
    // The method's own rows: what a run makes of them is found while it runs.
    require(method != nullptr && takes(*method, "runtime-rule"),
            "--runtime-rule does not apply to {}", compute.method);
    compute.run_policy = RunPolicy::ForwardBeforeLateGradient;
  }
  if (options_.with_recompute) compute = with_recompute(compute);
  const char* why = untrainable(compute);
  require(why == nullptr, "training by '{}' is to come: {}; it can be simulated and rehearsed",
          compute.method, why);
  const int width = transport_.workers() / linked_;
  require(compute.micro_batches == options_.micro_batches &&
              static_cast<int>(compute.workers.size()) == width,
          "the schedule is for {} workers and {} micro-batches; the job has {} workers and {} "
          "micro-batches per pipeline",
          compute.workers.size(), compute.micro_batches, width, options_.micro_batches);
  return compute;
}

// The plan of a run of `steps` steps of a method that updates within itself: as long as it needs to
// be for every row to have its body, and by whole repetitions shorter than the run.
Schedule Trainer::lowered_for(int steps) const {
  const int least = least_steps(lowered_);
  if (steps <= least) return lower(compute_plan(steps), how_);
  const int grain = run_grain(compute_plan(least));
  if (grain == 0) return lower(compute_plan(steps), how_);
  return lower(compute_plan(least + (steps - least) % grain), how_);
}

void Trainer::cut(const Schedule& compute) {
  const int stages = model_stages(compute);
  std::vector<int>& first = options_.first_block;
  if (first.empty()) first = balance_stages(graph_, stages);
  require(static_cast<int>(first.size()) == stages,
          "first blocks of {} stages are given, the schedule has {}", first.size(), stages);
}

void Trainer::plan() {
  one_step_ = compute_plan(1);
  const Schedule& one = one_step_;
  if (options_.plan) verify(one);  // as typed: messages then count steps in the user's own rows
  cut(one);
  how_.pipelines = linked_;
  how_.sync = options_.sync;
  for (const StagePair& edge : stage_edges(graph_, options_.first_block)) {
    if (edge.second != edge.first + 1) how_.extra_edges.push_back(edge);
  }
  how_.tied = tied_stages(graph_, options_.first_block);
  const bool repeated = hetu::is_asynchronous(one);
  how_.average_weights = options_.averaging.has_value();
  check_averaging(one);
  check_disturbance(options_.disturb, options_.pipelines,
                    options_.pipelines * static_cast<int>(one.workers.size()));
  how_.reduce_scalars = !repeated;
  lowered_ = repeated ? lower(compute_plan(proving_steps(one)), how_) : lower(one, how_);
  // As many messages of a border may be on their way as the plan needs to go on, and to go on at
  // once by its own order, and one more that is being made.
  const VerifyReport report = verify(lowered_);
  int slots = least_send_slots(lowered_);
  if (!repeated) {
    for (const Costs& costs : {Costs{}, flop_costs(graph_, model_stages(lowered_))})
      slots = std::max(slots, ample_send_slots(lowered_, costs));
  }
  if (repeated) check_updates(lowered_, report);
  stage_plans_ = compile(report, slots + 1);
  check_memory();
  micro_ids_ = options_.micro_batches * (lowered_.half_micros ? 2 : 1);
  if (repeated) {
    for (const StageNeeds& needs : report.stages)
      micro_ids_ = std::max(micro_ids_, micro_ids_in_work(one, needs.live_copies));
  }
}

// What runs the plan: memory, loops, and the links that they need.
void Trainer::build() {
  const bool repeated = hetu::is_asynchronous(one_step_);
  if (repeated) warn_of_ties();
  RunnerOptions run;
  run.pipeline = pipeline_;
  run.pipelines = linked_;
  run.plan = &lowered_;
  run.workers_per_pipeline = static_cast<int>(lowered_.workers.size());
  run.micro_batches = options_.micro_batches;
  run.micro_ids = micro_ids_;
  run.repeated = repeated;
  run.seed = options_.seed;
  run.averager = averager_.get();
  runner_ =
      std::make_unique<TrainRunner>(graph_, std::move(stage_plans_), optimizer_, run, transport_);
  const int width = static_cast<int>(lowered_.workers.size());
  if (options_.disturb.hetero > 0 || !options_.disturb.slow.empty())
    disturbance_ = std::make_unique<Disturbance>(options_.disturb, number(), width);
  Interpreter::Links links{transport_, reducer_};
  links.disturbance = disturbance_.get();
  if (repeated) {
    runs_ = std::make_unique<RepeatedRun>(*runner_, links, graph_.fetches.size(),
                                          averager_ ? own_pipeline() : comm::everyone(transport_),
                                          averager_.get());
  } else {
    training_ = std::make_unique<Interpreter>(bind_row(lowered_, transport_.worker(), linked_),
                                              *runner_, links);
  }
  // Validation's rows: the forwards of the plan, lowered alike; no updates.
  Lowering how = how_;
  how.reduce_scalars = true;
  how.average_weights = false;
  Row row = bind_row(lower(forward_only(one_step_), how), transport_.worker(), linked_);
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

CompileOptions Trainer::compile_options(const StageNeeds& needs, const StageSlots& slots) const {
  CompileOptions compile;
  compile.first_block = options_.first_block;
  compile.micro_batch = options_.batch_size / options_.micro_batches;
  compile.micro_batches = options_.micro_batches;
  compile.saved_copies = std::max(1, slots.saved);
  compile.live_copies = needs.live_copies;
  compile.held_copies = needs.split_copies + (holds(lowered_, Kind::Backward) ? 1 : 0);
  compile.recompute = slots.recompute;
  compile.half_backward = lowered_.half_micros;
  compile.split_backward = holds(lowered_, Kind::InputGrad);
  compile.local = slots.local;
  if (holds(lowered_, Kind::Update) && !how_.reduce_scalars) {
    compile.weight_copies = needs.weight_versions;
    // Fields are read again by R, B and W: unlike what is saved they stay where R makes it anew.
    compile.feed_slots = std::max(1, needs.live_copies) - 1 + options_.micro_batches;
  }
  compile.optimizer_states = optimizer_states(optimizer_.kind);
  compile.kernels = options_.kernels;
  return compile;
}

// The stages of this worker, by placement; the others' places stay empty.
std::vector<std::unique_ptr<StagePlan>> Trainer::compile(const VerifyReport& report,
                                                         int send_slots) {
  const std::vector<StageSlots> slots = stage_slots(lowered_, row_);
  std::vector<std::unique_ptr<StagePlan>> plans(lowered_.placements.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Placement& placement = lowered_.placements[i];
    if (placement.workers[0] != row_) continue;
    CompileOptions compile = compile_options(report.stages[i], slots[i]);
    compile.stage = placement.model_stage;
    compile.send_slots = send_slots;
    plans[i] = std::make_unique<StagePlan>(compile_stage(graph_, compile));
    if (options_.averaging) {
      const bool passive = options_.averaging->policy.method == groups::Method::AdPsgd;
      MemoryPlan& memory = plans[i]->memory;
      memory.averages = memory.weights * (passive ? 3 : 1);
      // Pipelines that may die agree in copies; see Averager::consensus.
      if (options_.averaging->apart)
        memory.averages += memory.weights + memory.optimizer + memory.buffers;
    }
    stages_.push_back({placement.model_stage, static_cast<int>(i), placement.replica == 0,
                       plans[i]->memory.saved});
    memory_.stages.push_back({placement.model_stage, plans[i]->memory});
    for (const StageFeed& feed : plans[i]->feeds) add_field(feed, compile.micro_batch);
  }
  std::sort(stages_.begin(), stages_.end(),
            [](const StageHere& a, const StageHere& b) { return a.stage < b.stage; });
  return plans;
}

void Trainer::add_field(const StageFeed& feed, std::int64_t micro_batch) {
  for (const FeedSpec& known : fields_)
    if (known.name == feed.field) return;
  fields_.push_back({feed.field, feed.type.dtype, sample_shape(feed, micro_batch)});
}

void Trainer::check_memory() const {
  if (options_.memory_limit == 0 || memory_.peak() <= options_.memory_limit) return;
  fail(Code::InvalidArgument,
       "worker {} (pipeline {}, stage {}) needs {} bytes, over the limit of {}: {}; use more "
       "stages, smaller micro-batches "
       "or a method that keeps fewer activations",
       transport_.worker(), pipeline_, stages_text(), memory_.peak(), options_.memory_limit,
       to_string(memory_));
}

// What all workers of the job need, in the order of their numbers.
std::vector<WorkerNeed> Trainer::needs() {
  std::vector<WorkerNeed> own =
      gather_needs(transport_, memory_.peak(), comm::make_tag(kStartTag, 0, 0, 1, 0));
  if (!mesh_) return own;
  std::vector<WorkerNeed> all(own.size() * options_.pipelines);
  for (const auto& [pipeline, text] : averager_->exchange(to_text(own))) {
    const std::vector<WorkerNeed> others = needs_from(text);
    if (others.size() != own.size())
      fail(Code::Comm, "pipeline {} has {} workers, this one has {}", pipeline, others.size(),
           own.size());
    std::copy(others.begin(), others.end(),
              all.begin() + pipeline * static_cast<std::ptrdiff_t>(own.size()));
  }
  return all;
}

// The same answer on all of them.
void Trainer::check_hosts() {
  const std::string why = overfull_host(needs());
  require(why.empty(), "{}", why);
}

}  // namespace hetu
