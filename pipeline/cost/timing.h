// How long instructions, messages and collectives take under given costs and stragglers. The
// simulator and a rehearsal both ask here, so that they disagree only where reality does.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/cost/stragglers.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Times in the costs' unit. Rows are global workers: pipeline * workers + worker. Schedule, costs
/// and stragglers must outlive it.
class Timing {
 public:
  Timing(const Schedule& schedule, const Costs& costs, const Stragglers& stragglers);

  /// F, B, I, W or R that starts at `at`; `index` counts the compute instructions before it in its
  /// row.
  double compute(const Instr& instr, int row, std::int64_t index, double at) const;
  /// On the worker: none where servers make the updates.
  double update(const Instr& instr, int row) const;
  /// A CURVATURE, INVERT or PRECONDITION of K-FAC.
  double second_order(const Instr& instr, int row) const;
  /// The sum of a placement's whole gradient over the copies of its stage, or the mean of its
  /// weights over some of them. Where pipelines are not cut alike, of that pipeline's stage, here
  /// and below.
  double over_copies(int placement, int pipeline = 0) const;
  /// REDUCE_GRAD, REDUCE_SCALARS, SYNC_A, SYNC_B or GATHER, from the last member's post.
  double collective(const Instr& instr) const;
  /// How long each of `servers` that share a placement's weights evenly is busy with them, one way:
  /// bytes / bandwidth of the common link. Where the costs name no bytes or no bandwidth half of
  /// over_copies, since an all-reduce moves as many bytes as a push and a pull.
  double served(int placement, int servers, int pipeline) const;
  /// How long each of the servers is busy with the update of a push: none where workers make them.
  double applied(int placement, int servers, int pipeline) const;
  /// From a push to the answer of its pull where nobody else is before them: twice latency and
  /// served, and applied.
  double answered(int placement, int servers, int pipeline) const;
  /// From the end of `made` (an F or B, or its SEND) on one row to where `user` needs it on
  /// another.
  double message(const Instr& made, int user_stage, int from_row, int to_row) const;

 private:
  double factor_sum(int placement) const;
  int pipeline_of(int row) const { return row / static_cast<int>(schedule_.workers.size()); }

  const Schedule& schedule_;
  const Costs& costs_;
  const Stragglers& stragglers_;
  Reductions reductions_;
  std::int64_t rows_;
  std::vector<double> slowness_;                      // per row: 1 / speed
  std::unordered_map<std::int64_t, LinkCost> pairs_;  // by from * rows + to
};

}  // namespace hetu
