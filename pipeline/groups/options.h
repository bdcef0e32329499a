// The methods of averaging in groups, and all constants of the policy. Read by the coordinator, by
// the simulator, and by programs that offer the constants as options.
#pragma once
#include <cstdint>
#include <string>

#include "base/fields.h"

namespace hetu::groups {

/// Method by which the pipelines' copies of a stage are kept together.
/// - PartialReduce: groups of the pipelines that are ready, with the synchronisation graph
///   connected every P updates (SD-PIPE).
/// - AdPsgd: an active pipeline averages at once with a passive pipeline, which does not wait (Lian
///   et al. 2018).
/// - AdPsgdLockstep: the pairs of SD-PIPE's artifact, chosen at random for each update and the same
///   in all stages.
enum class Method : std::uint8_t { PartialReduce, AdPsgd, AdPsgdLockstep };

/// Weight of a member in a mean.
/// - Uniform: all members count the same, which keeps the mean over all pipelines.
/// - Staleness: a member counts less the more updates it lags behind the newest member; see
///   Options::stale_share.
enum class Weights : std::uint8_t { Uniform, Staleness };

/// Sizes, and the constants of the policy. with_defaults() chooses `min_group` and `max_group` if
/// they are 0, and `wait` and `horizon` if they are below 0. All but `horizon` depend on P or on
/// the number of pipelines.
struct Options {
  Method method = Method::PartialReduce;
  int stages = 1;     ///< Stages of one pipeline, n.
  int pipelines = 1;  ///< Pipelines, N.
  /// P: the graph is connected every P updates of all pipelines; 1: all-reduce.
  int sync_period = 10;
  int min_group = 0;   ///< A smaller group waits while arrivals are near.
  int max_group = 0;   ///< Largest group; 2 is pair mode.
  int pair_above = 8;  ///< Pair mode above this number of pipelines, unless max_group is given.
  double wait = -1;    ///< Wait of a group below min_group, in intervals between requests.
  /// Distance of an arrival, in intervals, up to which a group that may close waits for it.
  double horizon = -1;
  /// Age (as a share of P * N) from which the two parts of the graph wait for each other.
  double soft = 0.6;
  /// Age (as a share of P * N + N) from which only groups that join the parts may close.
  double hard = 0.85;
  /// Intervals that the smaller part waits for the larger part between these two ages.
  double patience = 1;
  bool overlapped = true;  ///< True if averaging overlaps the next forward and backward.
  /// True if all stages of a pipeline update at once, at a flush. Otherwise they update one by one,
  /// in PipeDream's order.
  bool flushes = false;
  double smoothing = 0.25;  ///< Weight of the newest interval in the moving average.
  /// An arrival counts as not coming if it is overdue by this time, or by late_share intervals if
  /// that is less.
  std::int64_t late_us = 2000;
  double late_share = 0.05;  ///< In intervals; see late_us.
  /// An arrival must also be overdue by this number of mean deviations of its intervals, as far as
  /// they lie within the wait.
  double late_spread = 3;
  std::uint64_t seed = 0;  ///< Seed of AD-PSGD's random pairs.
  Weights weights = Weights::Uniform;
  /// For Weights::Staleness, above 0 and at most 1: a member that lags k updates behind the newest
  /// counts stale_share^k of it. A copy counts the updates of the newest weights that have come
  /// into it. After a group, all its members have the count of the newest one.
  /// Source: the dynamic weights of Miao et al. 2021 (Partial Reduce, SIGMOD). The constant power
  /// is Hetu's.
  double stale_share = 0.9;
};

/// Returns the options of averaging in groups. --group-options takes the constants in one text.
Fields fields(Options& options);

/// Returns the options with every constant filled in. Throws InvalidArgument for values out of
/// range.
Options with_defaults(Options options);

/// Returns "uniform" or "staleness", the names of --preduce-weights.
const char* weights_name(Weights weights);

/// Returns "preduce", "adpsgd" or "adpsgd-lockstep", the names of --sync-method.
const char* method_name(Method method);

/// Parses a name of weights_name() or method_name(). Throws InvalidArgument with the known names.
Weights parse_weights(const std::string& name);
Method parse_method(const std::string& name);

}  // namespace hetu::groups
