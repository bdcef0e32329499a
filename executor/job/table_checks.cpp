#include "executor/job/table_checks.h"

#include "base/error.h"
#include "executor/sync/server_tables.h"

namespace hetu {
namespace {

// Rejects cache settings that have no effect, for the reason `why`.
void refuse_cache(ps::CacheOptions given, const char* why) {
  ps::CacheOptions defaults;
  const Fields default_fields = fields(defaults);
  for (const OptionField& field : fields(given))
    require(text_of(field) == text_of(find_field(default_fields, field.name)), "{} {}",
            flag_of(field), why);
}

const std::string& table_name(const JobPlan& job) {
  return job.graph.parameters[static_cast<std::size_t>(job.tables[0].parameter)].name;
}

}  // namespace

Feature table_needs(const JobPlan& job) {
  if (job.tables.empty()) return {};
  const char* const methods = "Choose dp, gpipe or 1f1b, or keep the table on the workers";
  return {fmt::format("table '{}' on parameter servers", table_name(job)),
          {{Trait::WorkerUpdates, "Leave --sync-method ps out"},
           {Trait::Flush, methods},
           {Trait::SingleCopies, methods},
           {Trait::ElementwiseOptimizer,
            "Choose another optimizer, because servers see single rows of the table"},
           {Trait::NoClipping, "Leave clip_norm out, or keep the table on the workers"}}};
}

void check_tables(const JobPlan& job) {
  const JobOptions& o = job.options;
  if (job.tables.empty())
    return refuse_cache(o.cache,
                        "needs a model with embedding tables on parameter servers, and this model "
                        "has none: leave it "
                        "out, or put a table on the servers (placement=\"server\")");
  if (o.cache.capacity == 0)
    refuse_cache(o.cache, "needs a cache of rows: give --cache-rows N, or leave it out");
  const std::string& name = table_name(job);
  // With a push bound above 0, workers update their cached rows themselves. Only plain SGD can do
  // that without optimizer state.
  const bool plain = job.optimizer.kind == Optimizer::Kind::Sgd && job.optimizer.l2 == 0;
  require(
      in_rounds(o.cache) || plain,
      "--push-bound {}: workers then update their cached rows of '{}' without optimizer states, "
      "which only sgd without l2 can do; choose sgd without l2, or --push-bound 0",
      o.cache.push_bound, name);
  require(o.servers.has_value(),
          "table '{}' is on parameter servers, but this job has no servers; start it with heturun",
          name);
}

}  // namespace hetu
