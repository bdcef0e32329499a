// From options to a plan, its costs and its proof.
#include <algorithm>
#include <filesystem>

#include "cli/plan_options.h"
#include "graph/base/error.h"
#include "pipeline/generate/generate.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/lower/lower.h"
#include "pipeline/verify/verify.h"

namespace hetu::cli {
namespace {

// An option that a method does not take is refused by name: it would be ignored silently.
void refuse_unless(bool given, const char* option, const Method* method) {
  if (!given) return;
  if (method == nullptr) fail(Code::InvalidArgument, "--{} does not apply to a FILE", option);
  require(takes(*method, option), "--{} does not apply to {}", option, method->name);
}

void check_applicable(const PlanOptions& o, const Method* method) {
  refuse_unless(o.chunks.has_value(), "chunks", method);
  refuse_unless(o.pairs.has_value(), "pairs", method);
  refuse_unless(!o.stage_replicas.empty(), "stage-replicas", method);
  refuse_unless(o.runtime_rule, "runtime-rule", method);
  if (method == nullptr) {
    const std::string concat = o.concat.value_or("direct");
    require(concat == "halving" || concat == "direct",
            "--concat {} does not apply to a FILE; halving tells that backward ids are half-micros",
            concat);
    return;
  }
  refuse_unless(o.concat.has_value(), "concat", method);
  refuse_unless(o.pair_semantics.has_value(), "pair-semantics", method);
  refuse_unless(o.steps.has_value(), "steps", method);
  require(!o.replicas, "--replicas is for a FILE");
  require(!o.version_rule, "--version-rule is for a FILE");
}

// A plan is made by the costs of the first of several pipelines.
Costs of_first_pipeline(Costs costs, std::size_t workers, int pipelines) {
  const auto first = [&](std::vector<double>& list) {
    if (list.size() == workers * pipelines) list.resize(workers);
  };
  first(costs.speed);
  first(costs.memory_limit);
  const int most = static_cast<int>(workers);
  const auto elsewhere = [&](const LinkCost& l) {
    return pipelines > 1 && (l.from >= most || l.to >= most);
  };
  costs.pairs.erase(std::remove_if(costs.pairs.begin(), costs.pairs.end(), elsewhere),
                    costs.pairs.end());
  return costs;
}

Schedule generated(const PlanOptions& o, const Method& method) {
  Sizes sizes;
  // A method with one legal number of stages needs none stated.
  sizes.stages = o.stages.value_or(1);
  if (!o.stages && !o.stage_replicas.empty())
    sizes.stages = static_cast<int>(o.stage_replicas.size());
  const bool any = method.legal_stages({.stages = 2}) || method.legal_stages({.stages = 4});
  require(o.stages.has_value() || !o.stage_replicas.empty() || !any, "{} needs --stages P",
          method.name);
  require(o.micro_batches.has_value(), "{} needs --micro-batches M", method.name);
  sizes.micro_batches = *o.micro_batches;
  sizes.chunks = o.chunks.value_or(0);
  sizes.pairs = o.pairs.value_or(1);
  sizes.steps = o.steps.value_or(1);
  sizes.replicas = o.stage_replicas;
  sizes.concat = o.concat.value_or("direct");
  sizes.pair_semantics = o.pair_semantics.value_or("split");
  sizes.runtime_rule = o.runtime_rule;
  const int model_stages = sizes.stages * resolved(method, sizes).chunks;
  const Costs costs = of_first_pipeline(costs_for(o, model_stages), sizes.stages, o.pipelines);
  sizes.costs = &costs;
  sizes.run = &o.run;
  sizes.memory_limit = o.limit_micros.value_or(0);
  sizes.memory_bytes = o.limit_bytes.value_or(0);
  sizes.with_recompute = o.with_recompute;
  return generate(method.name, sizes);
}

PlanFacts facts_of(const PlanOptions& o) {
  PlanFacts facts;
  facts.stages = o.stages.value_or(0);
  facts.micro_batches = o.micro_batches.value_or(0);
  facts.replicas = o.replicas.value_or(0);
  facts.steps = o.steps.value_or(1);
  facts.pipelines = o.pipelines;
  facts.half_micros = o.concat == "halving";
  facts.pair_semantics = o.pair_semantics.value_or("");
  if (o.version_rule) facts.version_rule = parse_version_rule(*o.version_rule);
  return facts;
}

Schedule finished(const PlanOptions& o, const Schedule& plan) {
  check_pipelines(plan, o.pipelines);
  return o.with_recompute ? with_recompute(plan) : plan;
}

// The least that a stage's bytes come to, worker by worker, against the bound.
void check_bytes(const PlanOptions& o, const Schedule& lowered) {
  const Costs costs = costs_for(o, model_stages(lowered));
  const bool known = std::any_of(costs.stages.begin(), costs.stages.end(), [](const StageCost& c) {
    return c.activation_bytes > 0 || c.weight_bytes > 0;
  });
  require(known, "--memory-limit in bytes needs --costs with activation_bytes or weight_bytes");
  const Simulation s = simulate(lowered, costs);
  std::string lines;
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    if (s.workers[w].peak_bytes > *o.limit_bytes)
      lines +=
          fmt::format("\n  worker {} peaks at {:.1f} MiB", w, s.workers[w].peak_bytes / 1048576);
  }
  if (!lines.empty())
    fail(Code::Plan, "plan needs more memory than the limit of {:.1f} MiB:{}",
         *o.limit_bytes / 1048576, lines);
}

}  // namespace

Schedule plan_of(const PlanOptions& o) {
  const Method* method = find_method(o.source);
  std::error_code ignored;
  const bool file = method == nullptr && (o.source.find_first_of("./") != std::string::npos ||
                                          std::filesystem::exists(o.source, ignored));
  if (method == nullptr && !file) generate(o.source, {});  // refuses, naming what is known
  check_applicable(o, method);
  return finished(o, method != nullptr ? generated(o, *method) : read_plan(o.source, facts_of(o)));
}

Schedule plan_from_text(const PlanOptions& o, const std::string& text) {
  check_applicable(o, nullptr);
  return finished(o, parse_plan(text, o.source, facts_of(o)));
}

void refuse_sizes(const PlanOptions& o) {
  const auto refuse = [](bool given, const char* option) {
    require(!given, "--{} goes into the making of a plan, and this one is made", option);
  };
  refuse(o.stages.has_value(), "stages");
  refuse(o.micro_batches.has_value(), "micro-batches");
  refuse(o.chunks.has_value(), "chunks");
  refuse(o.pairs.has_value(), "pairs");
  refuse(!o.stage_replicas.empty(), "stage-replicas");
  refuse(o.concat.has_value(), "concat");
  refuse(o.replicas.has_value(), "replicas");
  refuse(o.steps.has_value(), "steps");
  refuse(o.pair_semantics.has_value(), "pair-semantics");
  refuse(o.runtime_rule, "runtime-rule");
  refuse(o.version_rule.has_value(), "version-rule");
  refuse(o.with_recompute, "with-recompute");
}

Schedule lowered_plan(const PlanOptions& o, const Schedule& plan) {
  const bool collectives = any_instr(plan, [](const Instr& i) { return is_collective(i.kind); });
  if (collectives || is_lowered(plan)) {
    require(o.pipelines == 1 || o.pipelines == plan.lowering.pipelines,
            "--pipelines {}: the plan is lowered already, for {}", o.pipelines,
            plan.lowering.pipelines);
    require(!o.sync, "--sync {}: the plan is lowered already; its reductions stand where they are",
            o.sync.value_or(""));
    return plan;
  }
  Lowering how = plan.lowering;
  how.pipelines = o.pipelines;
  how.sync = parse_sync_place(o.sync.value_or("eager-opt"));
  how.average_weights = averages_in_groups(o);
  return lower(plan, how);
}

bool averages_in_groups(const PlanOptions& o) {
  return o.sync_method != "allreduce" || o.overlap.value_or(false);
}

groups::Options policy_of(const PlanOptions& o) {
  groups::Options policy = o.policy;
  if (o.sync_method == "allreduce")
    policy.sync_period = 1;  // of groups that are everyone
  else
    policy.method = groups::parse_method(o.sync_method);
  const bool in_pairs = policy.method != groups::Method::PartialReduce;
  policy.overlapped = o.overlap.value_or(in_pairs || policy.sync_period > 1);
  policy.seed = o.run.seed;
  return policy;
}

GroupSimulation simulated_groups(const PlanOptions& o, const Schedule& lowered, bool events) {
  SimulateOptions run = o.run;
  run.send_slots = o.send_slots;
  run.events = events;
  return simulate_groups(lowered, costs_for(o, model_stages(lowered)), run, policy_of(o));
}

Simulation simulated(const PlanOptions& o, const Schedule& lowered, bool events) {
  if (averages_in_groups(o)) return simulated_groups(o, lowered, events).run;
  SimulateOptions run = o.run;
  run.send_slots = o.send_slots;
  run.events = events;
  return simulate(lowered, costs_for(o, model_stages(lowered)), run);
}

Costs costs_of(const PlanOptions& o) {
  Costs costs;
  if (!o.costs.empty()) {
    costs = read_costs(o.costs, o.table);
  } else {
    require(o.table.micro_batch_size == 0 && o.table.blocks_per_stage == 0,
            "--micro-batch-size and --blocks-per-stage are for --costs FILE.csv");
    StageCost& c = costs.stages[0];
    c.forward = o.forward.value_or(1);
    c.input_grad = o.backward ? *o.backward / 2 : o.input_grad.value_or(1);
    c.weight_grad = o.backward ? *o.backward / 2 : o.weight_grad.value_or(1);
    c.recompute = o.recompute.value_or(0);
  }
  for (StageCost& c : costs.stages) {
    if (o.update) c.update = *o.update;
    if (o.bytes) c.bytes_out = *o.bytes;
    if (o.allreduce) c.reduce_grad = 0;
  }
  if (o.allreduce) {
    costs.allreduce = *o.allreduce;
    for (BlockCost& b : costs.blocks) b.cost.reduce_grad = 0;
  }
  // A link in the file overrides the options.
  if (!costs.has_link) {
    costs.link.latency = o.latency.value_or(0);
    costs.link.bandwidth = o.bandwidth.value_or(0);
  }
  if (!o.speed.empty()) costs.speed = o.speed;
  return costs;
}

Costs costs_for(const PlanOptions& o, int model_stages) {
  Costs costs = costs_of(o);
  return costs.blocks.empty() ? costs : recut(costs, model_stages);
}

VerifyReport prove(const PlanOptions& o, const Schedule& plan, const Schedule& lowered) {
  // The plan as typed first: messages then count steps in the user's own rows.
  if (!is_lowered(plan)) verify(plan, {.memory_limit = o.limit_micros.value_or(0)});
  VerifyReport report =
      verify(lowered, {.send_slots = o.send_slots, .memory_limit = o.limit_micros.value_or(0)});
  if (o.limit_bytes) check_bytes(o, lowered);
  return report;
}

std::string trace_text(std::vector<TraceEvent> events, const Schedule& plan, const Costs& costs) {
  const std::string metadata =
      fmt::format("{{\"plan\":{},\"costs\":{},\"versions\":{{\"hetu\":\"{}\"}}}}", to_json(plan),
                  to_json(costs, plan), HETU_VERSION);
  return trace_to_json({std::move(events), metadata}) + "\n";
}

}  // namespace hetu::cli
