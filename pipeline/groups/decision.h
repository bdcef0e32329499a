// What goes into the policy of groups and what comes out of it: requests and decisions.
#pragma once
#include <cstdint>
#include <limits>
#include <vector>

#include "pipeline/groups/options.h"

namespace hetu::groups {

/// A pipeline that is not yet told where it stops.
inline constexpr std::int64_t kRunsOn = std::numeric_limits<std::int64_t>::max();

/// One pipeline has applied an update of one stage.
struct Request {
  int stage = 0;
  int pipeline = 0;
  std::int64_t update = 0;  ///< its count, from 1, over the whole training
};

/// Why a group closed.
enum class Reason : std::uint8_t {
  All,    ///< everyone is there
  Wide,   ///< wide enough, and nobody is near
  Alone,  ///< nobody near enough to wait for: fewer than the minimum group
  Joins,  ///< joins the two parts of the graph that were longest apart
  Frees,  ///< would have waited for ever: stages waited for each other's pipelines
  Last,   ///< nobody else comes in this run
  Drawn   ///< a pair of AD-PSGD, or its passive side
};

/// "all", "wide", …
const char* reason_name(Reason reason);

/// A closed group. Its updates are the next members.size() ones of its stage's count (AdPsgd: the
/// next one alone, the initiator's).
struct Decision {
  int stage = 0;
  std::vector<int> members;           ///< pipelines, ascending; one alone is legal
  std::vector<std::int64_t> updates;  ///< of each member; of a passive partner, its latest request
  std::int64_t serial = 0;            ///< per stage, from 0, over all runs
  /// Per member: the last update of its pipeline in this run, the same on all its stages; kRunsOn
  /// while that is open.
  std::vector<std::int64_t> stop_after;
  /// AdPsgd: the pipeline whose request this answers; a second member has not asked. -1: every
  /// member has.
  int initiator = -1;
  /// Per member, its share of the mean; they sum to 1. Empty: all alike.
  std::vector<double> weights;
  std::vector<std::int64_t> arrived_us;  ///< per member; of a passive partner, the time of closing
  std::int64_t closed_us = 0;
  Reason reason = Reason::All;
};

/// Updates that a stage's worker may begin beyond those that were answered: as many as are under
/// way between it and the last stage, and one more while the answer travels. Of stage 0 it is what
/// a run allows for: steps_before_answer in pipeline/ir/run_length.h, which says why; a test
/// compares them.
int updates_before_answer(int stages, int stage);

/// Where every pipeline stops if that is known before the first answer (P = 1, lockstep, or a run
/// no longer than what may be underway), counted within the run; else kRunsOn.
std::int64_t known_stop(const Options& options, std::int64_t updates);

}  // namespace hetu::groups
