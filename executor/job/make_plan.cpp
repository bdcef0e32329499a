// Planning happens in this order: passes on the graph (fusion, layout, precision), the cut into
// stages, the rows of the method, lowering, verification, K-FAC's work, compilation of this
// worker's stages, and the memory check. The needs of all features are checked here (job_needs.h),
// so that `check_job` finds all errors without links.
//
// A partition with a memory limit calls make_plan recursively: it tries cuts, and asks for the
// memory of each worker under each of them (cuts.h).
#include "executor/job/make_plan.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/words.h"
#include "executor/device/device.h"
#include "executor/device/threads.h"
#include "executor/job/cuts.h"
#include "executor/job/job_needs.h"
#include "executor/job/precision.h"
#include "executor/job/sharing.h"
#include "executor/job/table_checks.h"
#include "executor/job/wrong_workers.h"
#include "executor/loop/straggler_injector.h"
#include "executor/stage/block_times.h"
#include "executor/stage/curvature.h"
#include "executor/stage/feeds_ahead.h"
#include "graph/passes/channels_last.h"
#include "graph/passes/fuse.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_bias_grad.h"
#include "ops/registry.h"
#include "pipeline/cost/partition.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {
namespace {

void check_sizes(const JobOptions& o, int workers) {
  require(
      o.replicas.empty() || (static_cast<int>(o.replicas.size()) == o.stages && o.pipelines == 1),
      "{} numbers of replicas for {} stages in {} pipelines: one number per stage wanted, in 1 "
      "pipeline",
      o.replicas.size(), o.stages, o.pipelines);
  require(o.stages >= 1 && o.pipelines >= 1,
          "stages and pipelines must be whole numbers >= 1, got {} stages and {} pipelines",
          o.stages, o.pipelines);
  const int needed = linked_of(o) * width_of(o);
  require(needed == workers, "{}",
          wrong_workers(linked_of(o), counted(o.stages, "stage"), needed, workers));
  require(o.shares.empty() || static_cast<int>(o.shares.size()) == o.pipelines,
          "--shares has the micro-batches of {} pipelines, but the job has {}; give one number for "
          "each pipeline",
          o.shares.size(), o.pipelines);
  check_training_options(o);
}

Lowering lowering_of(const JobPlan& job) {
  const std::vector<int>& first_block = job.options.first_block;
  Lowering how;
  how.pipelines = job.linked;
  how.sync = job.options.sync;
  for (const StagePair& edge : stage_edges(job.graph, first_block)) {
    if (edge.second != edge.first + 1) how.extra_edges.push_back(edge);
  }
  how.tied = tied_stages(job.graph, first_block);
  how.sharing = sharing_of(job.options, !job.tables.empty());
  how.reduce_scalars = !job.asynchronous;
  return how;
}

// Returns every feature of the job that needs something of the rest of it, but those that need the
// lowered plan.
std::vector<Feature> features_of(const JobPlan& job) {
  const JobOptions& o = job.options;
  std::vector<Feature> all = {
      sharing_needs(job), loss_scale_needs(o.dtype), state_dtype_needs(o.state_dtype),
      table_needs(job),   sums_needs(job),           shares_needs(job)};
  if (has_factors(job.graph)) all.push_back(kfac_needs());
  return all;
}

// Checks that an asynchronous plan updates once per step, so that steps count updates. With waves,
// a stage updates after each micro-batch, and a step is one wave.
void check_updates(const Schedule& plan, const VerifyReport& report) {
  for (const StageNeeds& needs : report.stages) {
    const int each = std::max(1, total_micros(plan) / std::max(1, needs.updates));
    require(needs.updates == total_micros(plan) / micros_per_update(plan),
            "'{}' updates {} times per step of {} micro-batches; training counts one update per "
            "step: give it {} micro-batch(es) per step",
            plan.method, needs.updates / plan.steps, plan.micro_batches, each);
  }
}

// Makes the plan up to and including its verification.
VerifyReport plan_schedule(JobPlan& job) {
  job.one_step = job.computes(1);
  const JobOptions& o = job.options;
  if (o.plan) verify(job.one_step);  // as given: messages then count steps in the user's own rows
  job.asynchronous = is_asynchronous(job.one_step);
  cut_stages(job.graph, job.pipeline, model_stages(job.one_step), job.options);
  job.how = lowering_of(job);
  const int proving = proving_steps(job.one_step);
  if (job.asynchronous && !o.plan) job.many_steps = job.computes(proving);
  check_cuts(job.graph, o, job.one_step, job.how.has_servers());  // names the pipeline of a tie
  for (const Feature& feature : features_of(job)) check_needs(job, feature);
  if (o.averaging) group_policy(o);
  check_tables(job);
  check_injection(o.stragglers, o.pipelines, o.pipelines * job.width());
  if (job.asynchronous && o.plan) job.many_steps = job.computes(proving);
  ProvedPlan proved = proved_plan(job.asynchronous ? job.many_steps : job.one_step, job.how);
  job.lowered = std::move(proved.lowered);
  check_needs(job, wire_needs(job));
  job.sums = sums_of(job);
  if (has_factors(job.graph))
    job.curvature = plan_curvature(job.graph, job.optimizer.kfac, job.lowered, o.first_block,
                                   o.batch_size / o.micro_batches);
  return proved.report;
}

int send_slots(const JobPlan& job) {
  std::vector<Costs> costs;
  if (!job.asynchronous) costs = {Costs(), flop_costs(job.graph, model_stages(job.lowered))};
  return send_slots_for(job.lowered, costs);
}

CompileOptions compile_options(const JobPlan& job, const StageNeeds& needs,
                               const StageSlots& slots) {
  const JobOptions& o = job.options;
  CompileOptions compile;
  compile.first_block = o.first_block;
  compile.micro_batch = o.batch_size / o.micro_batches;
  compile.micro_batches = o.micro_batches;
  compile.saved_copies = std::max(1, slots.saved);
  compile.live_copies = needs.live_copies;
  compile.held_copies = needs.split_copies + (holds(job.lowered, Kind::Backward) ? 1 : 0);
  compile.recompute = slots.recompute;
  compile.half_backward = job.lowered.half_micros;
  compile.split_backward = holds(job.lowered, Kind::InputGrad);
  compile.local = slots.local;
  if (job.asynchronous) {
    compile.weight_copies = needs.weight_versions;
    // R, B and W read fed fields again. Saved activations are freed and recomputed by R, but fields
    // stay in memory.
    compile.feed_slots = std::max(1, needs.live_copies) - 1 + o.micro_batches;
  }
  compile.weights_rest = !job.asynchronous && !o.averaging && !job.how.has_servers();
  compile.pack_weights = o.pack_weights == "once";
  compile.optimizer_states = optimizer_states(job.optimizer.kind);
  compile.state_dtype = parse_state_dtype(o.state_dtype);
  compile.kernels = o.kernels;
  compile.dense_tables = o.dense_tables;
  compile.prepare = backend(o.device).prepare;
  compile.factor_scratch = backend(o.device).factor_scratch;
  return compile;
}

// Adds the memory of averages. Means are computed in float32. Tensors that are stored in float32
// are averaged in place, others need a float32 copy.
void add_averages(const Averaging& averaging, DType states, MemoryPlan& memory) {
  const bool passive = averaging.policy.method == groups::Method::AdPsgd;
  memory.averages = memory.weights * (passive ? 3 : 1);
  const std::int64_t widened = memory.optimizer * dtype_bytes(DType::Float32) / dtype_bytes(states);
  if (averaging.apart || states != DType::Float32) memory.averages += widened;
  // Pipelines that may be lost agree on a mean in copies; see Averager::consensus.
  if (averaging.apart) memory.averages += memory.weights + memory.buffers;
}

void add_shared(const JobPlan& job, MemoryPlan& memory) {
  std::optional<int> there;
  if (updates_at_servers(job.lowered)) there = optimizer_states(job.optimizer.kind);
  memory.averages += shared_bytes(
      memory.weights, lies_in_pieces(job.graph, segments_of(job.graph, job.options)), there);
}

void add_field(JobPlan& job, const StageFeed& feed, std::int64_t micro_batch) {
  for (const FeedSpec& known : job.fields)
    if (known.name == feed.field) return;
  const Shape& shape = feed.type.shape;
  require(!shape.empty() && shape[0] == micro_batch,
          "field '{}' must have the batch as its first dimension, got {}", feed.field,
          to_string(feed.type));
  job.fields.push_back({feed.field, feed.type.dtype, {shape.begin() + 1, shape.end()}});
}

// Returns the micro-batches in the order in which a worker's row adds them to K-FAC's factors, one
// list for each factor and time that it is made.
std::vector<std::vector<int>> factor_orders(const Schedule& plan, const JobPlan& job,
                                            int placement) {
  std::map<std::pair<Kind, int>, std::vector<int>> current;
  std::vector<std::vector<int>> orders;
  const int micros = job.options.micro_batches;
  for (const Instr& i : unroll(plan.workers[static_cast<std::size_t>(job.row)])) {
    if (i.stage != placement || (i.kind != Kind::CurvatureA && i.kind != Kind::CurvatureB))
      continue;
    std::vector<int>& order = current[{i.kind, i.part}];
    const int micro = micros_before(job.options, job.pipeline) + i.micro % micros;
    if (std::find(order.begin(), order.end(), micro) != order.end())
      orders.push_back(std::exchange(order, {}));
    order.push_back(micro);
  }
  for (auto& [factor, order] : current) orders.push_back(std::move(order));
  return orders;
}

// Returns the number of partial sums that a placement of this worker keeps at once.
int slots_of_sums(const JobPlan& job, int placement) {
  int slots = std::max(1, sum_slots(job.sums.at(job.worker, placement).micros, job.sums.total));
  if (!job.curvature) return slots;
  std::vector<const Schedule*> plans = {&job.curvature->cycle};
  for (const auto* list : {&job.curvature->whole, &job.curvature->first})
    for (const Schedule& plan : *list) plans.push_back(&plan);
  for (const Schedule* plan : plans)
    for (const std::vector<int>& order : factor_orders(*plan, job, placement))
      slots = std::max(slots, sum_slots(order, job.sums.total));
  return slots;
}

// Compiles the stages of this worker, indexed by placement. Entries of other workers' placements
// stay null.
void compile_stages(JobPlan& job, const VerifyReport& report) {
  const int sends = send_slots(job);
  if (job.asynchronous) check_updates(job.lowered, report);
  const std::vector<StageSlots> slots = stage_slots(job.lowered, job.row);
  job.stage_plans.resize(job.lowered.placements.size());
  for (std::size_t i = 0; i < job.stage_plans.size(); ++i) {
    const Placement& placement = job.lowered.placements[i];
    if (placement.workers[0] != job.row) continue;
    CompileOptions compile = compile_options(job, report.stages[i], slots[i]);
    compile.stage = placement.model_stage;
    compile.send_slots = sends;
    if (!job.sums.copies.empty()) compile.sum_slots = slots_of_sums(job, static_cast<int>(i));
    if (job.curvature) compile.tap_copies = job.curvature->tap_copies[i];
    job.stage_plans[i] = std::make_unique<StagePlan>(compile_stage(job.graph, compile));
    StagePlan& stage = *job.stage_plans[i];
    if (job.options.averaging)
      add_averages(*job.options.averaging, compile.state_dtype, stage.memory);
    if (job.how.has_servers()) add_shared(job, stage.memory);
    for (const StageParameter& p : stage.parameters) job.reads_tables |= p.served;
    job.stages.push_back(
        {placement.model_stage, static_cast<int>(i), placement.replica == 0, stage.memory.saved});
    job.memory.stages.push_back({placement.model_stage, stage.memory});
    for (const StageFeed& feed : stage.feeds) add_field(job, feed, compile.micro_batch);
  }
  std::sort(job.stages.begin(), job.stages.end(),
            [](const StageHere& a, const StageHere& b) { return a.stage < b.stage; });
}

// Adds memory for the fields of the next step, on devices to which fields are uploaded. Leaves it
// out if it would exceed the limit. Asynchronous plans need none, because their steps are fed while
// others run.
void add_ahead(JobPlan& job) {
  if (job.asynchronous || !backend(job.options.device).uploads) return;
  WorkerMemory with = job.memory;
  auto stage = with.stages.begin();
  for (const auto& plan : job.stage_plans) {
    if (!plan) continue;
    std::vector<std::int64_t> fields;
    for (const StageFeed& feed : plan->feeds)
      fields.push_back(feed.loc.stride * job.options.micro_batches);
    (stage++)->second.ahead = FeedsAhead::bytes_of(fields);
  }
  const std::int64_t limit = job.options.limit_bytes;
  if (limit != 0 && with.peak() + with.ahead() > limit) return;
  job.memory = std::move(with);
  stage = job.memory.stages.begin();
  for (const auto& plan : job.stage_plans)
    if (plan) plan->memory = (stage++)->second;
}

void check_memory(const JobPlan& job) {
  const std::int64_t limit = job.options.limit_bytes;
  if (limit == 0 || job.memory.peak() <= limit) return;
  fail(Code::InvalidArgument,
       "worker {} (pipeline {}, stage {}) needs {}, over the limit of {}: {}; use more "
       "stages, smaller micro-batches "
       "or a method that keeps fewer activations",
       job.worker, job.pipeline, job.stages_text(), memory_text(job.memory.peak()),
       memory_text(limit), to_string(job.memory));
}

int micro_ids_of(const JobPlan& job, const VerifyReport& report) {
  int ids = job.options.micro_batches * (job.lowered.half_micros ? 2 : 1);
  if (!job.asynchronous) return ids;
  for (const StageNeeds& needs : report.stages)
    ids = std::max(ids, micro_ids_in_work(job.one_step, needs.live_copies));
  return ids;
}

}  // namespace

JobPlan make_plan(const Graph& graph, const OptimizerConfig& optimizer, const JobOptions& given,
                  const WorkerIndex& index) {
  check_optimizer(optimizer);
  check_sizes(given, index.workers);
  const bool apart = given.averaging && given.averaging->apart;
  const int width = width_of(given);
  const int pipeline = apart ? given.averaging->apart->pipeline : index.worker / width;
  const JobOptions options = for_pipeline(given, pipeline);
  require(
      !optimizer.lazy_rows || !options.dense_tables,
      "lazy_rows goes by the rows of a table's gradient, and dense_tables wants it whole; leave "
      "one of them out");
  require(!graph.gradients.empty(),
          "the graph has no gradients: differentiate a loss before training");
  const ScopedThreadCount counted(options.threads);
  JobPlan job;
  job.graph = with_windows(graph, options.batch_size, job.tables);
  const bool best = options.kernels == KernelChoice::Best, fuses = best && options.fuse == "on";
  // Kernels that emulate a narrow type compute in float32 and round only their outputs, so a fused
  // operator would leave the values inside it unrounded. Attention alone is fused there: it never
  // rounds its weights, on any device.
  if (fuses) job.graph = is_emulated(options.dtype) ? fuse_attention(job.graph) : fused(job.graph);
  if (best) job.graph = channels_last(job.graph, op_set());
  job.graph = in_precision(job.graph, options.dtype, options.device);
  if (fuses) job.graph = fuse_bias_grad(job.graph);
  job.optimizer = optimizer;
  job.options = partitioned(job.graph, options, [&](const JobOptions& cut, int worker) {
    const JobPlan plan = make_plan(graph, optimizer, cut, {worker, index.workers});
    return PlannedNeed{plan.stage(), plan.memory.peak()};
  });
  job.worker = index.worker;
  job.linked = linked_of(options);
  job.pipeline = pipeline;
  job.row = index.worker % width;
  const VerifyReport report = plan_schedule(job);
  compile_stages(job, report);
  add_ahead(job);
  check_memory(job);
  job.micro_ids = micro_ids_of(job, report);
  return job;
}

std::vector<int> balance_stages(const Graph& graph, int stages) {
  return balance_blocks(block_flops(graph), stages);
}

}  // namespace hetu
