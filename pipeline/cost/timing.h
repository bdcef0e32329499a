// Durations of instructions, messages and collectives under given costs and stragglers. The
// simulator and a rehearsal both use them, so that they differ only where reality does.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Durations in the costs' unit. Rows are global workers: pipeline * workers + worker. Schedule,
/// costs and stragglers must outlive this object.
class Timing {
 public:
  Timing(const Schedule& schedule, const Costs& costs, const Stragglers& stragglers);

  /// Returns the time of an F, B, I, W or R that starts at `at`. `index` counts the compute
  /// instructions before it in its row.
  double compute(const Instr& instr, int row, std::int64_t index, double at) const;
  /// Returns the time of an update on the worker: 0 if servers make the updates.
  double update(const Instr& instr, int row) const;
  /// Returns the time of a CURVATURE, INVERT or PRECONDITION of K-FAC.
  double second_order(const Instr& instr, int row) const;
  /// Returns the time to sum a placement's whole gradient over the copies of its stage, or to
  /// average its weights over some of the copies. `pipeline` selects the stage if pipelines have
  /// different cuts, here and below.
  double over_copies(int placement, int pipeline = 0) const;
  /// Returns the time of a REDUCE_GRAD, REDUCE_SCALARS, SYNC_A, SYNC_B or GATHER, from the last
  /// member's post.
  double collective(const Instr& instr) const;
  /// Returns the time that each of `servers`, which share a placement's weights evenly, is busy
  /// with their transfer in one direction: bytes / bandwidth of the common link. If the costs have
  /// no bytes or no bandwidth, this is half of over_copies(), because an all-reduce moves as many
  /// bytes as a push and a pull.
  double served(int placement, int servers, int pipeline) const;
  /// Returns the time that each of the servers is busy with the update of a push: 0 if workers make
  /// the updates.
  double applied(int placement, int servers, int pipeline) const;
  /// Returns the time from a push to the answer of its pull if no other transfer is before them:
  /// twice latency and served(), plus applied().
  double answered(int placement, int servers, int pipeline) const;
  /// Returns the time from the end of `made` (an F or B, or its SEND) on one row to its arrival at
  /// `user_stage` on another row.
  double message(const Instr& made, int user_stage, int from_row, int to_row) const;

 private:
  double factor_sum(int placement) const;
  int pipeline_of(int row) const { return row / static_cast<int>(schedule_.workers.size()); }

  const Schedule& schedule_;
  const Costs& costs_;
  const Stragglers& stragglers_;
  Reductions reductions_;
  std::int64_t rows_;
  std::vector<double> slowness_;                      // 1 / speed per row
  std::unordered_map<std::int64_t, LinkCost> pairs_;  // by from * rows + to
};

}  // namespace hetu
