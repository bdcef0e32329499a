// Input and output of the policy of groups: requests and decisions.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "pipeline/groups/options.h"

namespace hetu::groups {

/// Stop of a pipeline that does not know yet where it stops.
inline constexpr std::int64_t kRunsOn = std::numeric_limits<std::int64_t>::max();

/// A request: a pipeline has applied an update of a stage.
struct Request {
  int stage = 0;
  int pipeline = 0;
  std::int64_t update = 0;  ///< Number of the update, from 1, over the whole training.
};

/// Reason for which a group closed.
enum class Reason : std::uint8_t {
  All,    ///< All expected pipelines are in the group.
  Wide,   ///< The group is wide enough, and no arrival is near.
  Alone,  ///< No arrival is near enough to wait for; the group is smaller than the minimum.
  Joins,  ///< The group joins the two parts of the graph that were apart the longest.
  /// The request would have waited forever, because stages waited for each other's pipelines.
  Frees,
  Last,  ///< No other pipeline sends a request in this run.
  Drawn  ///< A random pair of AD-PSGD, or a passive pipeline's own request, which closes alone.
};

/// Returns "all", "wide", …
const char* reason_name(Reason reason);

/// A closed group. Its updates are the next members.size() updates in the count of its stage. With
/// AdPsgd only the initiator's update counts.
struct Decision {
  int stage = 0;
  std::vector<int> members;  ///< Pipelines in ascending order. A single member is allowed.
  /// Update of each member; for a passive partner, that of its latest request.
  std::vector<std::int64_t> updates;
  std::int64_t serial = 0;  ///< Number of the group within its stage, from 0, over all runs.
  /// Per member: the last update of its pipeline in this run, the same on all its stages; kRunsOn
  /// if this is not decided yet.
  std::vector<std::int64_t> stop_after;
  /// AdPsgd: the pipeline with the request that this decision answers. The other member has sent no
  /// request for it. -1: every member has sent a request.
  int initiator = -1;
  /// Share of each member in the mean, with sum 1. Empty: equal shares.
  std::vector<double> weights;
  /// Arrival of each member's request; for a passive partner, the time of closing.
  std::vector<std::int64_t> arrived_us;
  std::int64_t closed_us = 0;
  Reason reason = Reason::All;
};

/// Returns the number of updates that a stage's worker may begin beyond those that were answered:
/// as many as are in progress between it and the last stage, and one more while the answer travels.
/// For stage 0 this equals steps_before_answer() in pipeline/ir/run_length.h, by which runs are
/// limited and which explains the number. A test compares the two.
int updates_before_answer(int stages, int stage);

/// Returns the update at which every pipeline stops, counted within the run, if this is known
/// before the first answer. It is known for P = 1, for lockstep, and for a run of at most as many
/// updates as may be in progress. Returns kRunsOn otherwise.
std::int64_t known_stop(const Options& options, std::int64_t updates);

}  // namespace hetu::groups
