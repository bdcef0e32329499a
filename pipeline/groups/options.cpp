#include "pipeline/groups/options.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hetu::groups {
namespace {

void check(const Options& o) {
  require(o.stages >= 1, "stages must be at least 1, got {}", o.stages);
  require(o.pipelines >= 2, "{} averages between pipelines and needs at least 2, got {}",
          method_name(o.method), o.pipelines);
  Options stated = o;
  check_fields(fields(stated));
  require(o.soft <= o.hard, "expected 0 <= soft <= hard <= 1, got soft {}, hard {}", o.soft,
          o.hard);
  require(o.weights == Weights::Uniform || o.method == Method::PartialReduce,
          "weights by staleness are for preduce; {} averages two pipelines with equal weights",
          method_name(o.method));
  require(o.min_group >= 1 && o.min_group <= o.pipelines,
          "the minimum group size must be from 1 to {}, the number of pipelines, got {}",
          o.pipelines, o.min_group);
  require(o.max_group >= std::max(2, o.min_group) && o.max_group <= o.pipelines,
          "the maximum group size must be from {} to {}, got {}", std::max(2, o.min_group),
          o.pipelines, o.max_group);
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
       .doc = "for preduce: groups connect all pipelines within every P updates of each pipeline; "
              "1: every update averages all pipelines",
       .range = {.least = 1}},
      {.name = "min_group",
       .value = &o.min_group,
       .argument = "G",
       .doc =
           "for preduce: smaller groups wait if more pipelines are expected soon; 0: derived from "
           "--sync-period"},
      {.name = "max_group",
       .value = &o.max_group,
       .argument = "G",
       .doc = "for preduce: size of the largest group; 2: pairs; 0: all pipelines, or pairs, see "
              "--pair-above"},
      {.name = "pair_above",
       .value = &o.pair_above,
       .argument = "N",
       .doc = "for preduce: use pairs if there are more pipelines than this",
       .range = {.least = 1}},
      {.name = "weights",
       .value = TextAccess{[&o] { return weights_name(o.weights); },
                           [&o](const std::string& v) { o.weights = parse_weights(v); }},
       .argument = "HOW",
       .doc =
           "for preduce: weights of the members in a mean: uniform, or staleness, which gives less "
           "weight to pipelines that lag",
       .choices = {"uniform", "staleness"},
       .flag = "--preduce-weights"},
  };
}

Fields constants(Options& o) {
  return {
      constant("wait", &o.wait,
               "longest wait of a group below min_group, in intervals between requests", {},
               "from sync_period"),
      constant("horizon", &o.horizon,
               "a group that may close still waits for arrivals expected within this many "
               "intervals",
               {}, "0.05"),
      constant("soft", &o.soft,
               "age, as a share of P N, from which the two parts of the graph wait for each other",
               {0, 1}),
      constant("hard", &o.hard,
               "age, as a share of P N + N, from which only groups that join the two parts may "
               "close",
               {0, 1}),
      constant("patience", &o.patience,
               "intervals that the smaller part waits for the larger part between the ages soft "
               "and hard"),
      constant("smoothing", &o.smoothing, "weight of the newest interval in the moving average",
               {0, 1, true}),
      constant("late_us", &o.late_us,
               "an arrival that is overdue by this many microseconds is no longer expected"),
      constant("late_share", &o.late_share,
               "as late_us, but in intervals; the smaller of the two counts"),
      constant("late_spread", &o.late_spread,
               "an arrival must also be overdue by this many mean deviations of its intervals, "
               "within the wait"),
      constant("stale_share", &o.stale_share,
               "with weights by staleness: a pipeline that lags by k updates has the weight "
               "stale_share^k",
               {0, 1, true}),
  };
}

}  // namespace

Fields fields(Options& o) {
  const Fields rest = {
      {.name = "seed", .value = &o.seed, .argument = "N", .doc = "seed of AD-PSGD's random pairs"},
      {.name = "overlap",
       .value = &o.overlapped,
       .doc = "average during the next forward and backward; never with sync_period 1",
       .negated = "a stage waits for its average before it continues"},
  };
  return joined(joined(sizes_of_groups(o), constants(o)), rest);
}

Options with_defaults(Options o) {
  require(o.min_group >= 0 && o.max_group >= 0,
          "group sizes must not be negative, got minimum {}, maximum {}", o.min_group, o.max_group);
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
       "unknown averaging method '{}'; known: preduce, adpsgd, adpsgd-lockstep",
       name.substr(0, 60));
}

}  // namespace hetu::groups
