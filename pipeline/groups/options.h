// Who averages with whom: the methods and every constant of the policy. Read by the coordinator,
// the simulator, and whoever offers the constants as options.
#pragma once
#include <cstdint>
#include <string>

#include "base/fields.h"

namespace hetu::groups {

/// How the pipelines' copies of a stage are kept together. PartialReduce: groups of whoever is
/// there, the synchronisation graph connected every P updates (SD-PIPE). AdPsgd: an active pipeline
/// averages at once with a passive one, which waits for nobody (Lian et al. 2018). AdPsgdLockstep:
/// the pairs of SD-PIPE's artifact, drawn anew for each update, the same in all stages.
enum class Method : std::uint8_t { PartialReduce, AdPsgd, AdPsgdLockstep };

/// What a member counts for in a mean. Uniform: as much as any other, which keeps the mean over all
/// pipelines. Staleness: less the more updates it lags behind the newest member; see
/// Options::stale_share.
enum class Weights : std::uint8_t { Uniform, Staleness };

/// Sizes, and the constants of the policy. A constant of 0 (`min_group`, `max_group`) or below 0
/// (`wait`, `horizon`) is chosen by with_defaults from P and the number of pipelines.
struct Options {
  Method method = Method::PartialReduce;
  int stages = 1;     ///< of one pipeline, n
  int pipelines = 1;  ///< N
  int sync_period =
      10;             ///< P: the graph is connected every P updates of all pipelines; 1: all-reduce
  int min_group = 0;  ///< a smaller group is waited for, while arrivals are near
  int max_group = 0;  ///< 2 is pair mode
  int pair_above = 8;   ///< pair mode above this many pipelines, unless max_group is given
  double wait = -1;     ///< of a group below min_group, in intervals between requests
  double horizon = -1;  ///< how near an arrival must be to widen a group that may close, likewise
  double soft = 0.6;    ///< age (in P * N) from which both parts of the graph seek each other
  double hard = 0.85;   ///< age (in P * N + N) from which nothing goes that joins no parts
  double patience = 1;  ///< intervals that the smaller part waits for the other between the two
  bool overlapped = true;  ///< averaging goes on beside the next forward and backward
  /// All stages of a pipeline update at once, behind a flush; else one by one, in PipeDream's
  /// order.
  bool flushes = false;
  double smoothing = 0.25;      ///< weight of the newest interval in the moving average
  std::int64_t late_us = 2000;  ///< an arrival this much overdue is not coming, or
  double late_share = 0.05;     ///< this many intervals, if that is less; but within the wait
  double late_spread = 3;       ///< no less than this many mean deviations of its intervals
  std::uint64_t seed = 0;       ///< of AD-PSGD's draws
  Weights weights = Weights::Uniform;
  /// Of Weights::Staleness, above 0 and at most 1: a member that lags k updates behind the newest
  /// counts stale_share^k of it. Updates are counted as the newest weights that are in a copy:
  /// after a group all of its members have the count of the newest one.
  /// Source: the dynamic weights of Miao et al. 2021 (Partial Reduce, SIGMOD); the constant is
  /// ours.
  double stale_share = 0.9;
};

/// What may be told of averaging in groups; --group-options takes the constants in one text.
Fields fields(Options& options);

/// The same with every constant filled in. Throws InvalidArgument: what is out of range.
Options with_defaults(Options options);

/// "uniform", "staleness": the names of --preduce-weights.
const char* weights_name(Weights weights);

/// "preduce", "adpsgd", "adpsgd-lockstep": the names of --sync-method.
const char* method_name(Method method);

/// The inverses. Throw InvalidArgument naming the known ones.
Weights parse_weights(const std::string& name);
Method parse_method(const std::string& name);

}  // namespace hetu::groups
