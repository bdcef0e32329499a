// Evaluation of options: the plan, its costs and its proof.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/text_file.h"
#include "pipeline/cost/block_table.h"
#include "pipeline/cost/limits.h"
#include "pipeline/cost/profile_file.h"
#include "pipeline/fill/curvature.h"
#include "pipeline/ir/plan_file.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/run_length.h"
#include "pipeline/lower/lower.h"
#include "pipeline/options/cost_samples.h"
#include "pipeline/options/plan_options.h"
#include "pipeline/plan/proved_plan.h"

namespace hetu {
namespace {

// Returns true for options of some methods that may also describe a FILE.
bool is_of_files(const std::string& name) {
  return name == "concat" || name == "steps" || name == "pair_semantics";
}

// Refuses options that the method or a FILE doesn't have, so that no option is silently ignored.
void check_applicable(const PlanOptions& o, const Method* method) {
  if (method != nullptr) {
    std::set<std::string> given = o.given;
    if (o.sync_method == "ps") given.erase("steps");  // each step has a flush
    return refuse_foreign(*method, given);
  }
  Sizes unused;
  for (const OptionField& f : fields(unused)) {
    const std::string option = flag_of(f).substr(2);
    require(!o.has(f.name.c_str()) || !is_of_some_methods(option) || is_of_files(f.name),
            "--{} does not apply to a FILE", option);
  }
  const std::string& concat = o.sizes.concat;
  require(concat == "halving" || concat == "direct",
          "--concat {} does not apply to a FILE; halving tells that backward ids are half-micros",
          concat);
}

// Returns the costs of the first pipeline, by which a plan is generated.
Costs of_first_pipeline(Costs costs, std::size_t workers, int pipelines) {
  const auto first = [&](std::vector<double>& list) {
    if (list.size() == workers * pipelines) list.resize(workers);
  };
  if (!costs.cuts.empty()) costs.stages.resize(costs.cuts.front().size());
  costs.cuts.clear();
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

// Returns the computations of a method's plan.
Schedule generated(const PlanOptions& o, const Method& method) {
  Sizes sizes = o.sizes;
  // A method with a single legal number of stages doesn't need --stages.
  const bool by_replicas = !o.has("stages") && !sizes.replicas.empty();
  if (by_replicas) sizes.stages = static_cast<int>(sizes.replicas.size());
  const bool any = method.legal_stages({.stages = 2}) || method.legal_stages({.stages = 4});
  require(o.has("stages") || by_replicas || !any, "{} needs --stages P", method.name);
  require(o.has("micro_batches"), "{} needs --micro-batches M", method.name);
  const int model_stages = sizes.stages * resolved(method, sizes).chunks;
  // The check whether pipelines may have different partitions needs the plan.
  const Costs costs =
      of_first_pipeline(costs_for(o, model_stages, true), sizes.stages, o.pipelines);
  sizes.costs = &costs;
  sizes.run = &o.run;
  return computations(
      {.method = method.name, .sizes = sizes, .costs = &costs, .flushes = o.sync_method == "ps"});
}

PlanFacts facts_of(const PlanOptions& o) {
  PlanFacts facts;
  if (o.has("stages")) facts.stages = o.sizes.stages;
  if (o.has("micro_batches")) facts.micro_batches = o.sizes.micro_batches;
  if (o.has("replicas")) facts.replicas = o.replicas;
  facts.steps = o.sizes.steps;
  facts.pipelines = o.pipelines;
  facts.staleness = o.staleness;
  facts.half_micros = o.sizes.concat == "halving";
  if (o.has("pair_semantics")) facts.pair_semantics = o.sizes.pair_semantics;
  if (o.has("version_rule")) facts.version_rule = parse_version_rule(o.version_rule);
  return facts;
}

// Refuses options about servers if the plan has no servers.
void refuse_of_servers(const PlanOptions& o, const Lowering& how, const std::string& method) {
  for (const char* option : {"staleness", "servers"})
    require(
        !o.has(option) || how.has_servers(),
        "--{} is for pipelines that push to servers (--sync-method hetpipe or ps); those of '{}' "
        "do not",
        option, method);
}

// Returns how pipelines share the model, for a plan that is not lowered yet.
Lowering lowering_of(const PlanOptions& o, const Schedule& plan) {
  Lowering how = plan.lowering;
  how.pipelines = o.pipelines;
  how.sync = o.sync;
  how.sharing = GradientSums{};
  if (averages_in_groups(o)) how.sharing = WeightAverages{};
  const bool waves = plan.version_rule == VersionRule::Wave && is_asynchronous(plan);
  const bool by_itself = waves && o.pipelines > 1 && !o.has("sync_method") && !how.averages();
  if (is_of_servers(o.sync_method) || by_itself) how.sharing = ParameterServers{o.staleness};
  if (o.sync_method == "hetpipe" && !waves)
    fail(Code::InvalidArgument,
         "--sync-method hetpipe is of hetpipe, whose versions go by waves; '{}' has {}",
         plan.method,
         is_asynchronous(plan) ? "others" : "a flush after each step: --sync-method ps");
  refuse_of_servers(o, how, plan.method);
  return how;
}

// A lowered plan without communication, such as one on a single worker, counts as not lowered.
bool is_lowered_already(const Schedule& plan) {
  return any_instr(plan,
                   [](const Instr& i) { return !is_compute(i.kind) && i.kind != Kind::Update; });
}

// Checks that options about sharing agree with a plan that is lowered already.
void check_lowered(const PlanOptions& o, const Schedule& plan) {
  const Lowering& how = plan.lowering;
  require(o.pipelines == 1 || o.pipelines == how.pipelines,
          "--pipelines {}: the plan is lowered already, for {}", o.pipelines, how.pipelines);
  require(!o.has("sync"),
          "--sync {}: the plan is lowered already; its reductions stand where they are",
          sync_place_name(o.sync));
  require(!o.has("sync_method") || is_of_servers(o.sync_method) == how.has_servers(),
          "--sync-method {}: the plan is lowered already, with{} pushes to servers", o.sync_method,
          how.has_servers() ? "" : "out");
  refuse_of_servers(o, how, plan.method);
  require(!o.has("staleness") || o.staleness == how.staleness(),
          "--staleness {}: the plan is lowered already, with {}", o.staleness, how.staleness());
}

// Returns the computations of a plan that was read, or the plan if it is lowered already.
Schedule changed(const PlanOptions& o, Schedule plan) {
  const bool lowered = is_lowered_already(plan);
  PlanSource source{.sizes = o.sizes, .flushes = o.sync_method == "ps" && !lowered};
  Costs costs;
  if (o.sizes.split_backward) {
    require(!lowered, "--split-backward: the plan is lowered already");
    costs = of_first_pipeline(costs_for(o, plan), plan.workers.size(), o.pipelines);
    source.costs = &costs;
  }
  source.rows = std::move(plan);
  return computations(source);
}

// Checks that the pipelines of the options can share the plan.
Schedule checked(const PlanOptions& o, Schedule plan) {
  if (!is_lowered_already(plan)) check_pipelines(plan, lowering_of(o, plan));
  return plan;
}

// Returns the costs of the micro-batch size that the options choose.
Costs costs_in_profile(const Profile& profile, const CostOptions& given) {
  const int size = given.table.micro_batch_size;
  if (size == 0 && profile.size() == 1) return profile.begin()->second;
  std::string sizes;
  for (const auto& [measured, costs] : profile)
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", measured);
  require(size > 0,
          "--costs {}: the profile has the costs of micro-batches of {} samples; choose one with "
          "--micro-batch-size B",
          given.costs, sizes);
  return costs_of_size(profile, size, given.costs);
}

// Checks the peak memory of each worker against the limit in bytes. The simulation runs without
// stragglers.
void check_bytes(const PlanOptions& o, const Schedule& lowered) {
  const Costs costs = costs_for(o, lowered);
  check_bytes_known(o, costs);
  const Simulation s = simulate(lowered, costs);
  std::string lines;
  for (std::size_t w = 0; w < s.workers.size(); ++w) {
    if (s.workers[w].peak_bytes > o.sizes.memory_bytes)
      lines +=
          fmt::format("\n  worker {} peaks at {:.1f} MiB", w, s.workers[w].peak_bytes / 1048576);
  }
  if (!lines.empty())
    fail(Code::Plan, "plan needs more memory than the limit of {:.1f} MiB:{}",
         o.sizes.memory_bytes / 1048576, lines);
}

}  // namespace

bool has_profile(const CostOptions& given) {
  return !given.costs.empty() && is_profile(read_text(given.costs));
}

void check_bytes_known(const PlanOptions& o, const Costs& costs) {
  const bool known = std::any_of(costs.stages.begin(), costs.stages.end(), [](const StageCost& c) {
    return c.activation_bytes > 0 || c.weight_bytes > 0;
  });
  require(known || o.sizes.memory_bytes == 0,
          "--memory-limit in bytes needs --costs with activation_bytes or weight_bytes");
}

bool is_plan_function(const std::string& source) {
  const auto is_name = [](const std::string& part) {
    return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '.';
    });
  };
  const std::size_t colon = source.find(':');
  std::error_code ignored;
  return colon != std::string::npos && is_name(source.substr(0, colon)) &&
         is_name(source.substr(colon + 1)) && !std::filesystem::exists(source, ignored);
}

Schedule plan_of(const PlanOptions& o) {
  if (is_plan_function(o.source)) {
    require(o.plan_function != nullptr, "{}: give the function itself in place of its name",
            o.source);
    require(o.has("stages") && o.has("micro_batches"),
            "{} needs --stages P and --micro-batches M, which the function takes", o.source);
    return plan_from_text(o, o.plan_function(o.source, o.sizes.stages, o.sizes.micro_batches));
  }
  const Method* method = find_method(o.source);
  std::error_code ignored;
  const bool file = method == nullptr && (o.source.find_first_of("./") != std::string::npos ||
                                          std::filesystem::exists(o.source, ignored));
  if (method == nullptr && !file) generate(o.source, {});  // throws, with the known names
  check_applicable(o, method);
  return checked(
      o, method != nullptr ? generated(o, *method) : changed(o, read_plan(o.source, facts_of(o))));
}

Schedule plan_from_text(const PlanOptions& o, const std::string& text) {
  check_applicable(o, nullptr);
  return checked(o, changed(o, parse_plan(text, o.source, facts_of(o))));
}

void refuse_sizes(const PlanOptions& o) {
  Sizes unused;
  std::vector<std::string> making = {"replicas", "version_rule"};
  for (const OptionField& f : fields(unused)) making.push_back(f.name);
  PlanOptions other;
  for (const OptionField& f : only(fields(other), making))
    require(!o.has(f.name.c_str()), "{} goes into the making of a plan, and this one is made",
            flag_of(f));
}

Schedule lowered_plan(const PlanOptions& o, const Schedule& plan) {
  const bool lowered = is_lowered_already(plan);
  if (lowered) check_lowered(o, plan);
  Lowering how = plan.lowering;
  if (!lowered) how = lowering_of(o, plan);
  how.reduce_scalars |= !o.fill.empty();  // all workers' steps end together, as in training
  Schedule made = lowered ? plan : lower(plan, how);
  if (o.fill.empty()) return made;
  CurvatureOptions curvature;
  curvature.layers.assign(model_stages(plan), o.factor_layers);
  curvature.every = o.curvature_every;
  curvature.rule = parse_fill_rule(o.fill);
  curvature.makers = parse_inverse_makers(o.inverses);
  return with_curvature(made, curvature, costs_for(o, made));
}

bool is_of_servers(const std::string& sync_method) {
  return sync_method == "hetpipe" || sync_method == "ps";
}

bool averages_in_groups(const PlanOptions& o) {
  if (is_of_servers(o.sync_method)) return false;
  return o.sync_method != "allreduce" || (o.has("overlap") && o.policy.overlapped);
}

groups::Options policy_of(const PlanOptions& o) {
  groups::Options policy = o.policy;
  if (o.sync_method == "allreduce")
    policy.sync_period = 1;  // for groups that contain all pipelines
  else
    policy.method = groups::parse_method(o.sync_method);
  const bool in_pairs = policy.method != groups::Method::PartialReduce;
  if (!o.has("overlap")) policy.overlapped = in_pairs || policy.sync_period > 1;
  policy.seed = o.run.seed;
  return policy;
}

GroupSimulation simulated_groups(const PlanOptions& o, const Schedule& lowered, bool events) {
  SimulateOptions run = o.run;
  run.events = events;
  return simulate_groups(lowered, costs_for(o, lowered), run, policy_of(o));
}

Simulation simulated(const PlanOptions& o, const Schedule& lowered, bool events) {
  if (averages_in_groups(o)) return simulated_groups(o, lowered, events).run;
  SimulateOptions run = o.run;
  run.events = events;
  return simulate(lowered, costs_for(o, lowered), run);
}

Costs costs_of(const PlanOptions& o) {
  const CostOptions& given = o.costs;
  Costs costs;
  if (!given.costs.empty()) {
    const std::string text = read_text(given.costs);
    const bool profile = is_profile(text);
    require(is_block_table(text) || given.table.blocks_per_stage == 0,
            "--blocks-per-stage chooses from a CSV of blocks, and {} is not one; leave it out",
            given.costs);
    costs = profile ? costs_in_profile(parse_profile(text, given.costs), given)
                    : parse_costs(text, given.costs, given.table);
    require(is_block_table(text) || profile || given.table.micro_batch_size == 0 ||
                given.table.micro_batch_size == samples_in_file(given.costs),
            "--micro-batch-size {} chooses from a CSV of blocks or a profile, and {} has the costs "
            "of one size; leave it out",
            given.table.micro_batch_size, given.costs);
  } else {
    require(given.table.micro_batch_size == 0 && given.table.blocks_per_stage == 0,
            "--micro-batch-size and --blocks-per-stage are for --costs FILE");
    StageCost& c = costs.stages[0];
    c.forward = given.forward;
    c.input_grad = o.has("backward") ? given.backward / 2 : given.input_grad;
    c.weight_grad = o.has("backward") ? given.backward / 2 : given.weight_grad;
    c.recompute = given.recompute;
  }
  for (StageCost& c : costs.stages) {
    if (o.has("update")) c.update = given.update;
    if (o.has("bytes")) c.bytes_out = given.bytes;
    if (o.has("allreduce")) c.reduce_grad = 0;
  }
  // --allreduce is one time for all stages and replaces times of single stages.
  if (o.has("allreduce")) {
    costs.allreduce = given.allreduce;
    for (BlockCost& b : costs.blocks) b.cost.reduce_grad = 0;
  }
  // A link in the file overrides the options.
  if (!costs.has_link) {
    costs.link.latency = given.latency;
    costs.link.bandwidth = given.bandwidth;
  }
  require(is_bandwidth(costs.link.bandwidth),
          "--bandwidth must be 0 (unlimited) or at least {}, got {}", kLeastBandwidth,
          costs.link.bandwidth);
  if (!o.speed.empty()) costs.speed = o.speed;
  return costs;
}

Costs costs_for(const PlanOptions& o, int model_stages, bool apart) {
  const Costs costs = costs_of(o);
  if (o.has("partition"))
    return recut(costs, o.partition, {model_stages, o.pipelines, costs.speed, apart});
  return costs.blocks.empty() || !costs.cuts.empty() ? costs : recut(costs, model_stages);
}

Costs costs_for(const PlanOptions& o, const Schedule& plan) {
  const Lowering how = is_lowered_already(plan) ? plan.lowering : lowering_of(o, plan);
  return costs_for(o, model_stages(plan),
                   how.has_servers() && plan.version_rule == VersionRule::Wave);
}

VerifyReport prove(const PlanOptions& o, const Schedule& plan, const Schedule& lowered) {
  VerifyReport report =
      prove(plan, lowered, {.send_slots = o.run.send_slots, .memory_limit = o.sizes.memory_limit});
  if (o.sizes.memory_bytes > 0) check_bytes(o, lowered);
  return report;
}

std::string trace_text(std::vector<TraceEvent> events, const Schedule& plan, const Costs& costs) {
  const std::string metadata = fmt::format(
      "{{\"plan\":{},\"costs\":{},\"time_unit\":\"{}\",\"versions\":{{\"hetu\":\"{}\"}}}}",
      to_json(plan), to_json(costs, plan), costs.unit.empty() ? "unit" : costs.unit, HETU_VERSION);
  return trace_to_json({std::move(events), metadata}) + "\n";
}

}  // namespace hetu
