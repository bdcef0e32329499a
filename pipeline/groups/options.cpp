#include "pipeline/groups/options.h"

#include <algorithm>
#include <cmath>

#include "graph/base/error.h"

namespace hetu::groups {
namespace {

void check(const Options& o) {
  require(o.stages >= 1, "stages must be at least 1, got {}", o.stages);
  require(o.pipelines >= 2, "{} averages between pipelines: at least 2 are needed, got {}",
          method_name(o.method), o.pipelines);
  require(o.sync_period >= 1, "the synchronisation period must be at least 1, got {}",
          o.sync_period);
  require(o.pair_above >= 1, "pair mode begins above {} pipelines; it must be at least 1",
          o.pair_above);
  const auto share = [](double x, const char* what) {
    require(std::isfinite(x) && x >= 0, "{} must be a finite number >= 0, got {}", what, x);
  };
  share(o.wait, "wait");
  share(o.horizon, "horizon");
  share(o.soft, "soft");
  share(o.hard, "hard");
  share(o.patience, "patience");
  share(o.late_share, "late share");
  share(o.late_spread, "late spread");
  require(o.soft <= o.hard && o.hard <= 1, "0 <= soft <= hard <= 1 is needed, got soft {}, hard {}",
          o.soft, o.hard);
  require(std::isfinite(o.smoothing) && o.smoothing > 0 && o.smoothing <= 1,
          "smoothing must be above 0 and at most 1, got {}", o.smoothing);
  require(o.stale_share > 0 && o.stale_share <= 1,
          "stale share must be above 0 and at most 1, got {}", o.stale_share);
  require(o.weights == Weights::Uniform || o.method == Method::PartialReduce,
          "weights by staleness are partial reduce's; {} averages two pipelines alike",
          method_name(o.method));
  require(o.late_us >= 0, "late must be at least 0 us, got {}", o.late_us);
  require(o.min_group >= 1 && o.min_group <= o.pipelines,
          "the minimum group must be 1…{}, the number of pipelines, got {}", o.pipelines,
          o.min_group);
  require(o.max_group >= std::max(2, o.min_group) && o.max_group <= o.pipelines,
          "the maximum group must be {}…{}, got {}", std::max(2, o.min_group), o.pipelines,
          o.max_group);
}

}  // namespace

Options with_defaults(Options o) {
  require(o.min_group >= 0 && o.max_group >= 0,
          "groups must have at least 1 member, got minimum {}, maximum {}", o.min_group,
          o.max_group);
  const int period = std::max(1, o.sync_period);
  if (o.max_group == 0) o.max_group = o.pipelines > o.pair_above ? 2 : std::max(2, o.pipelines);
  if (o.min_group == 0)
    o.min_group = std::clamp((2 * o.pipelines + period - 1) / period, 2, std::max(2, o.max_group));
  if (period == 1) o.min_group = o.max_group = std::max(2, o.pipelines);
  // A wait beside compute costs nothing until it is as long as the interval.
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
