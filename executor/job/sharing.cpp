#include "executor/job/sharing.h"

#include <map>
#include <variant>
#include <vector>

#include "base/error.h"
#include "executor/sync/server_tables.h"

namespace hetu {
namespace {

constexpr const char* kUntie = "Untie it (\"tie_word_embeddings\": false), or use one stage";

const char* averaging_name(const JobOptions& o) {
  return groups::method_name(o.averaging->policy.method);
}

// Returns the needs of each strategy.
struct NeedsOf {
  const JobPlan& job;

  Feature operator()(const GradientSums&) const { return {}; }

  Feature operator()(const WeightAverages&) const {
    return {averaging_name(job.options),
            {{Trait::SeveralPipelines,
              fmt::format("Give devices for at least 2 (pipe_2_{}), or leave it out",
                          job.options.stages)},
             {Trait::SeparateUpdates, "Choose a method such as pipedream"},
             {Trait::UntiedStages, kUntie}}};
  }

  // With waves, workers run the optimizer, and servers add their updates.
  Feature operator()(const ParameterServers&) const {
    if (job.one_step.version_rule == VersionRule::Wave)
      return {"sharing weights over servers by waves", {{Trait::UntiedStages, kUntie}}};
    return {"--sync-method ps",
            {{Trait::ElementwiseOptimizer,
              "Choose another optimizer, because each server has parts of parameters"},
             {Trait::DenseUpdates, "Leave lazy_rows or --sync-method ps out"},
             {Trait::UntiedStages, kUntie}}};
  }
};

// Returns the layout of the pipelines, whose plans differ if they have shares.
SumLayout layout_of(const JobPlan& job) {
  const JobOptions& o = job.options;
  const Schedule& own = job.asynchronous ? job.one_step : job.lowered;
  if (o.shares.empty()) return sum_layout(own, job.linked);
  std::map<int, Schedule> others;
  std::vector<const Schedule*> plans;
  for (int d = 0; d < job.linked; ++d) {
    const JobOptions of = for_pipeline(o, d);
    if (of.micro_batches == o.micro_batches) {
      plans.push_back(&own);
      continue;
    }
    const auto [at, fresh] = others.try_emplace(of.micro_batches);
    if (fresh) at->second = computes_of(job.graph, of, 1);
    plans.push_back(&at->second);
  }
  return sum_layout(plans);
}

// Checks that servers can add gradients in the order of the tree. They get one sum from each
// pipeline, so this sum must be a node of the tree.
void check_sums_of_servers(const JobPlan& job, const SumLayout& layout) {
  const JobOptions& o = job.options;
  const bool has_servers = job.how.has_servers();
  const std::string what = fmt::format("--sums {} with {}", o.sums,
                                       has_servers ? "--sync-method ps" : "tables on servers");
  require(!has_servers || job.optimizer.clip_norm == 0,
          "{} needs an optimizer without clip_norm, because each stage is clipped by its own norm, "
          "and it is {}. Leave it out, or use --sums running",
          what, job.optimizer.clip_norm);
  require(!has_servers || job.graph.buffers.empty(),
          "{} needs a model without running statistics, because each pipeline keeps its own until "
          "the end of a run, and this one has '{}'. Use --sums running",
          what, job.graph.buffers.empty() ? "" : job.graph.buffers.front().name);
  if (o.pipelines == 1 || (!has_servers && job.tables.empty())) return;
  require(!has_servers || o.staleness == 0,
          "{} needs updates of all pipelines together, and with --staleness {} each pipeline makes "
          "its own. Leave it out, or use --sums running",
          what, o.staleness);
  require(job.tables.empty() || in_rounds(o.cache),
          "{} needs changes of rows in every step, and --push-bound {} holds them back. Leave it "
          "out, or use --sums running",
          what, o.cache.push_bound);
  for (const SumCopy& copy : layout.copies)
    require(copy.parts.size() == 1,
            "{} and {} pipelines needs 1, 2, 4, 8, … micro-batches per pipeline, because servers "
            "get one sum from each pipeline, and --micro-batches is {}. Choose such a number, or "
            "--sums running",
            what, o.pipelines, o.micro_batches);
  for (const GradientUse& use : job.graph.gradients) {
    const Parameter& parameter = job.graph.parameters[static_cast<std::size_t>(use.parameter)];
    require(use.use == 0 || !(has_servers || parameter.served),
            "{} needs parameters with one use, because servers can't tell the gradients of several "
            "uses apart, and '{}' has more. Untie it, or use --sums running",
            what, parameter.name);
  }
}

}  // namespace

Sharing sharing_of(const JobOptions& o, bool has_tables) {
  const bool servers = o.servers && (!has_tables || wants_servers(o));
  require(
      servers || o.staleness == 0,
      "--staleness {} needs pipelines that share weights over servers: --pipeline hetpipe on at "
      "least 2 pipelines, or --sync-method ps. Leave it out for '{}' on {}.",
      o.staleness, o.plan ? o.plan->method : o.method, o.pipelines);
  require(!servers || !o.averaging,
          "'{}' shares weights over servers, so its pipelines cannot average them, too. Leave {} "
          "out.",
          o.plan ? o.plan->method : o.method,
          o.averaging && o.averaging->policy.method == groups::Method::PartialReduce ? "--preduce"
                                                                                     : "--adpsgd");
  if (servers) return ParameterServers{o.staleness};
  if (o.averaging) return WeightAverages{};
  return GradientSums{};
}

Feature sharing_needs(const JobPlan& job) { return std::visit(NeedsOf{job}, job.how.sharing); }

Feature wire_needs(const JobPlan& job) {
  const std::string& wire = job.options.wire;
  if (wire == "float32") return {};
  return {"--wire " + wire,
          {{Trait::GradientSums, "Leave it out, or give devices for several pipelines"}}};
}

Feature sums_needs(const JobPlan& job) {
  if (job.options.sums == "running") return {};
  Feature feature = {"--sums " + job.options.sums,
                     {{Trait::DenseUpdates, "Leave lazy_rows out, or use --sums running"}}};
  // With updates at servers, rows have no flush, but each step is one update of all its gradients.
  if (!job.how.has_servers() || job.one_step.version_rule == VersionRule::Wave)
    feature.needs.push_back({Trait::Flush, "Choose a synchronous method, or --sums running"});
  return feature;
}

Feature shares_needs(const JobPlan& job) {
  if (job.options.shares.empty()) return {};
  require(!job.options.plan,
          "--shares needs a method by name, because the rows of '{}' have one number of "
          "micro-batches; leave it out, or choose a method",
          job.options.plan ? job.options.plan->method : "");
  require(!has_factors(job.graph),
          "--shares and K-FAC don't go together, because all pipelines share one plan of its work; "
          "leave one of them out");
  return {"--shares",
          {{Trait::WorkerUpdates, "Leave --sync-method ps or --shares out"},
           {Trait::Flush, "Choose a synchronous method, or leave it out"},
           {Trait::WorkerTables, "Keep the tables on the workers, or leave it out"}}};
}

SumLayout sums_of(const JobPlan& job) {
  const JobOptions& o = job.options;
  if (o.sums == "running") return {};
  require(o.wire == "float32",
          "--wire {} rounds the gradients that copies send each other, so that --sums {} could not "
          "give the same bits; leave one of them out",
          o.wire, o.sums);
  require(!has_factors(job.graph) || job.optimizer.kfac.replan == 0,
          "--sums {} plans memory for the order in which K-FAC's factors are added, and replan {} "
          "may change it; leave one of them out",
          o.sums, job.optimizer.kfac.replan);
  SumLayout layout = layout_of(job);
  check_sums_of_servers(job, layout);
  return layout;
}

}  // namespace hetu
