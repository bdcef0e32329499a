#include "pipeline/groups/options.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hetu::groups {
namespace {

void check(const Options& o) {
  require(o.stages >= 1, "stages must be at least 1, got {}", o.stages);
  require(o.pipelines >= 2, "{} averages between pipelines: at least 2 are needed, got {}",
          method_name(o.method), o.pipelines);
  Options stated = o;
  check_fields(fields(stated));
  require(o.soft <= o.hard, "0 <= soft <= hard <= 1 is needed, got soft {}, hard {}", o.soft,
          o.hard);
  require(o.weights == Weights::Uniform || o.method == Method::PartialReduce,
          "weights by staleness are partial reduce's; {} averages two pipelines alike",
          method_name(o.method));
  require(o.min_group >= 1 && o.min_group <= o.pipelines,
          "the minimum group must be 1…{}, the number of pipelines, got {}", o.pipelines,
          o.min_group);
  require(o.max_group >= std::max(2, o.min_group) && o.max_group <= o.pipelines,
          "the maximum group must be {}…{}, got {}", std::max(2, o.min_group), o.pipelines,
          o.max_group);
}

constexpr const char* kConstants = "--group-options";

OptionField constant(const char* name, FieldPointer value, const char* doc, Range range = {},
                     const char* otherwise = nullptr) {
  return {.name = name,
          .value = std::move(value),
          .doc = doc,
          .range = range,
          .otherwise = otherwise,
          .within = kConstants};
}

Fields sizes_of_groups(Options& o) {
  return {
      {.name = "method",
       .value = TextAccess{[&o] { return method_name(o.method); },
                           [&o](const std::string& v) { o.method = parse_method(v); }},
       .argument = "HOW",
       .doc = "preduce, adpsgd (as published) or adpsgd-lockstep (the pairs of SD-PIPE's artifact)",
       .choices = {"preduce", "adpsgd", "adpsgd-lockstep"},
       .flag = "--sync-method"},
      {.name = "sync_period",
       .value = &o.sync_period,
       .argument = "P",
       .doc = "of partial reduce: all pipelines are connected every P updates of each; 1 = every "
              "update of all",
       .range = {.least = 1}},
      {.name = "min_group",
       .value = &o.min_group,
       .argument = "G",
       .doc =
           "of partial reduce: smaller groups wait, while arrivals are near; 0: by --sync-period"},
      {.name = "max_group",
       .value = &o.max_group,
       .argument = "G",
       .doc =
           "of partial reduce: no group is larger; 2 = pairs; 0: all, or pairs, see --pair-above"},
      {.name = "pair_above",
       .value = &o.pair_above,
       .argument = "N",
       .doc = "of partial reduce: pairs with more pipelines than this",
       .range = {.least = 1}},
      {.name = "weights",
       .value = TextAccess{[&o] { return weights_name(o.weights); },
                           [&o](const std::string& v) { o.weights = parse_weights(v); }},
       .argument = "HOW",
       .doc =
           "of partial reduce, what members count for in a mean: uniform, or staleness: less who "
           "lags",
       .choices = {"uniform", "staleness"},
       .flag = "--preduce-weights"},
  };
}

Fields constants(Options& o) {
  return {
      constant("wait", &o.wait, "of a group below min_group, in intervals between requests", {},
               "by sync_period"),
      constant("horizon", &o.horizon,
               "how near an arrival must be to widen a group that may close, likewise", {}, "0.05"),
      constant("soft", &o.soft, "age (in P N) from which both parts of the graph seek each other",
               {0, 1}),
      constant("hard", &o.hard, "age (in P N + N) from which nothing goes that joins no parts",
               {0, 1}),
      constant("patience", &o.patience,
               "intervals that the smaller part waits for the other between the two"),
      constant("smoothing", &o.smoothing, "weight of the newest interval in the moving average",
               {0, 1, true}),
      constant("late_us", &o.late_us,
               "microseconds: an arrival this much overdue is not coming, or"),
      constant("late_share", &o.late_share,
               "this many intervals, if that is less; but within the wait"),
      constant("late_spread", &o.late_spread,
               "no less than this many mean deviations of its intervals"),
      constant("stale_share", &o.stale_share,
               "with weights by staleness: who lags k updates counts stale_share^k", {0, 1, true}),
  };
}

}  // namespace

Fields fields(Options& o) {
  const Fields rest = {
      {.name = "seed", .value = &o.seed, .argument = "N", .doc = "of AD-PSGD's draws"},
      {.name = "overlap",
       .value = &o.overlapped,
       .doc =
           "averages go on beside the next forward and backward; with sync_period 1 they never do",
       .negated = "a stage waits for its average before it goes on"},
  };
  return joined(joined(sizes_of_groups(o), constants(o)), rest);
}

Options with_defaults(Options o) {
  require(o.min_group >= 0 && o.max_group >= 0,
          "groups must have at least 1 member, got minimum {}, maximum {}", o.min_group,
          o.max_group);
  const int period = std::max(1, o.sync_period);
  if (o.max_group == 0) o.max_group = o.pipelines > o.pair_above ? 2 : std::max(2, o.pipelines);
  if (o.min_group == 0)
    o.min_group = std::clamp((2 * o.pipelines + period - 1) / period, 2, std::max(2, o.max_group));
  if (period == 1) o.min_group = o.max_group = std::max(2, o.pipelines);
  // A wait that overlaps compute costs nothing until it is as long as the interval.
  if (o.wait < 0)
    o.wait = o.overlapped ? std::clamp(1.1 - 0.1 * period, 0.1, 0.9)
                          : std::clamp(0.35 - 0.03 * period, 0.1, 0.3);
  if (o.horizon < 0) o.horizon = 0.05;
  check(o);
  return o;
}

const char* weights_name(Weights weights) {
  return weights == Weights::Uniform ? "uniform" : "staleness";
}

const char* method_name(Method method) {
  switch (method) {
    case Method::PartialReduce:
      return "preduce";
    case Method::AdPsgd:
      return "adpsgd";
    case Method::AdPsgdLockstep:
      return "adpsgd-lockstep";
  }
  return "?";
}

Weights parse_weights(const std::string& name) {
  for (const Weights weights : {Weights::Uniform, Weights::Staleness})
    if (name == weights_name(weights)) return weights;
  fail(Code::InvalidArgument, "unknown weighting '{}'; known: uniform, staleness",
       name.substr(0, 60));
}

Method parse_method(const std::string& name) {
  for (const Method method : {Method::PartialReduce, Method::AdPsgd, Method::AdPsgdLockstep})
    if (name == method_name(method)) return method;
  fail(Code::InvalidArgument,
       "unknown way to average '{}'; known: preduce, adpsgd, adpsgd-lockstep", name.substr(0, 60));
}

}  // namespace hetu::groups
