// Who sums gradients with whom, and under which part. Lowering places these reductions, the
// verifier demands them, the interpreter carries them out.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Throws InvalidArgument unless pipelines of the plan can share a model so: those whose versions
/// go by waves by servers, and no others; weights averaged or on servers, not both; a staleness
/// that is none or with servers.
void check_pipelines(const Schedule& schedule, const Lowering& how);

/// Placements of each worker in descending model stage, in which order their gradients become whole,
/// but for uneven numbers of micro-batches per copy.
std::vector<std::vector<int>> stages_by_worker(const Schedule& schedule);

/// The reductions of a plan. A model stage with more than one copy (replicas x pipelines) reduces
/// its buckets over all of them; a tied pair is reduced over all copies of both stages. Where
/// weights are averaged or on servers instead, only over those of one pipeline.
class Reductions {
 public:
  /// Throws InvalidArgument: as check_pipelines; numbers of buckets that cannot be; ties between
  /// stages that are not there.
  explicit Reductions(const Schedule& schedule);

  /// Parts that this placement reduces before its update: buckets 0…n-1, then n + t for tied pair
  /// t.
  const std::vector<int>& parts(int stage) const { return parts_[stage]; }

  /// The REDUCE_GRADs of these placements, which are all of one worker, in the order in which it
  /// launches them. All workers have their common ones in the same order, since a sum waits for
  /// those before it: by descending model stage, a tied pair after its lower stage, whose gradient
  /// becomes whole last.
  std::vector<Instr> in_order(const std::vector<int>& stages) const;

  /// True if the placement's gradient has this part: a bucket, or a tied pair that it belongs to.
  bool exists(int stage, int part) const;

  /// A number that all members of one reduction share: (model stage, part), or the tied pair.
  std::int64_t group(int stage, int part) const;
  /// The same of a REDUCE_GRAD, SYNC_A, SYNC_B or GATHER.
  std::int64_t group(const Instr& sum) const;

  /// Placements of one pipeline that take part in the reduction, one per worker.
  std::vector<int> members(int stage, int part) const;
  /// The same of a REDUCE_GRAD, SYNC_A, SYNC_B or GATHER.
  std::vector<int> members(const Instr& sum) const;

  /// Whether the placement's factors are sums over copies of its stage.
  bool syncs_factors(int stage) const {
    return copies_[schedule_.placements[stage].model_stage] > 1;
  }
  /// Layers of the placement that have factors.
  int factor_layers(int stage) const;
  /// Copies that share the placement's inversions; 1: each makes all.
  int sharers(int stage) const;
  /// Rounds of its inversions: the layers, divided among them.
  int rounds(int stage) const;
  /// The layers of one of its rounds: from `first`, below `end`.
  struct Layers {
    int first = 0, end = 0;
  };
  Layers layers_of(int stage, int round) const;
  /// The layer that an INVERT_A or INVERT_B takes in a pipeline; -1: in this round that copy has
  /// none, and idles.
  int inverted_layer(const Instr& inversion, int pipeline) const;

  /// By instruction of a whole row: whether it inverts or gathers factors that are of the cycle
  /// before, as none of its layers has had a piece there.
  std::vector<bool> of_cycle_before(const std::vector<Instr>& row) const;

  /// True if the plan sums scalars; over one worker too, since that is where a step has its norm.
  bool scalars() const { return scalars_; }

 private:
  int buckets(int model_stage) const;

  const Schedule& schedule_;
  std::vector<std::vector<int>> parts_;
  std::vector<int> copies_;  // by model stage: those that share its gradients
  bool scalars_ = false;
};

/// Whether a plan with K-FAC's work has inversions of the cycle before: Lowering::wraps.
bool wraps_work(const Schedule& schedule);

}  // namespace hetu
