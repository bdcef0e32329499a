#include "executor/job/sharing.h"

#include <variant>

#include "base/error.h"

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
  return {"--sums " + job.options.sums,
          {{Trait::WorkerUpdates, "Use --sync-method allreduce, or --sums running"},
           {Trait::Flush, "Choose a synchronous method, or --sums running"},
           {Trait::WorkerTables, "Keep the tables on the workers, or use --sums running"},
           {Trait::DenseUpdates, "Leave lazy_rows out, or use --sums running"}}};
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
  return sum_layout(job.lowered, job.linked);
}

}  // namespace hetu
