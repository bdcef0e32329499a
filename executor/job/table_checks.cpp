#include "executor/job/table_checks.h"

#include "base/error.h"
#include "executor/sync/server_tables.h"
#include "pipeline/ir/run_length.h"

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

bool has_copies(const Schedule& plan) {
  for (const Placement& p : plan.placements)
    if (p.replica > 0) return true;
  return false;
}

}  // namespace

void check_tables(const TableUse& use, const TrainerOptions& o) {
  if (use.tables.empty())
    return refuse_cache(
        o.cache,
        "is of models whose embedding tables lie on parameter servers, and this one has none "
        "there: leave it out, or put a table there (placement=\"server\")");
  if (o.cache.capacity == 0)
    refuse_cache(o.cache,
                 "is of a cache of rows, and none are kept: give --cache-rows N, or leave it out");
  const std::string& name =
      use.graph.parameters[static_cast<std::size_t>(use.tables[0].parameter)].name;
  const std::string& method = use.one_step.method;
  require(!is_asynchronous(use.one_step) && !wants_servers(o),
          "table '{}' lies on parameter servers, which goes with methods whose pipelines sum "
          "gradients once per step (dp, gpipe, 1f1b); '{}'{} does not",
          name, method, o.sync_method == "ps" ? " with --sync-method ps" : "");
  require(!has_copies(use.one_step),
          "table '{}' lies on parameter servers, which goes with methods that have each stage once "
          "in a pipeline; '{}' has copies",
          name, method);
  require(is_elementwise(use.optimizer.kind),
          "table '{}' lies on parameter servers, which see the rows of a step and no whole "
          "parameter, as {} does: choose another optimizer",
          name, optimizer_name(use.optimizer.kind));
  require(use.optimizer.clip_norm == 0,
          "table '{}' lies on parameter servers, and its gradient is in no norm: leave clip_norm "
          "out, or the table on the workers",
          name);
  // With a push bound above 0, workers update their cached rows themselves. Only plain SGD can do
  // that without optimizer state.
  const bool plain = use.optimizer.kind == Optimizer::Kind::Sgd && use.optimizer.l2 == 0;
  require(
      in_rounds(o.cache) || plain,
      "--push-bound {}: workers then change the rows of '{}' that they keep by themselves, which "
      "sgd without l2 alone can do without states: choose that, or --push-bound 0",
      o.cache.push_bound, name);
  require(o.servers.has_value(),
          "table '{}' lies on parameter servers, and this job has none: start it by heturun", name);
}

}  // namespace hetu
