// The groups of placements that sum their gradients, and the part under which they do. Lowering
// places these reductions, the verifier requires them, and the interpreter runs them.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/ir/schedule.h"

namespace hetu {

/// Checks how pipelines of the plan share a model. Throws InvalidArgument in these cases:
/// - Several pipelines have versions by waves without servers.
/// - Pipelines both average weights and use servers.
/// - A staleness is below kAnyStaleness, or is not 0 without servers.
/// - A plan with servers has neither versions by waves nor a single weight version. Without waves
///   it must also have its updates in its rows, and one copy of each stage.
void check_pipelines(const Schedule& schedule, const Lowering& how);

/// Returns each worker's placements in descending order of model stage. Their gradients become
/// complete in this order, unless the copies of a stage take different numbers of micro-batches.
std::vector<std::vector<int>> stages_by_worker(const Schedule& schedule);

/// The reductions of a plan. A model stage with more than one copy (replicas x pipelines) reduces
/// its buckets over all copies. A tied pair is reduced over all copies of both stages. If weights
/// are averaged or kept on servers, only the copies within one pipeline take part.
class Reductions {
 public:
  /// Throws InvalidArgument as check_pipelines() does, and for owners in a plan in which pipelines
  /// share no gradient. Also throws InvalidArgument for ties between unknown stages, and if the
  /// numbers of buckets or factor layers are out of range or don't fit the model stages.
  explicit Reductions(const Schedule& schedule);

  /// Returns the parts that this placement reduces before its update: buckets 0…n-1, then n + t for
  /// tied pair t.
  const std::vector<int>& parts(int stage) const { return parts_[stage]; }

  /// Returns the REDUCE_GRADs of these placements, all of one worker, in the order in which the
  /// worker launches them. A sum waits for the sums before it. So all workers must launch their
  /// common sums in the same order: by descending model stage, and a tied pair after the sums of
  /// its lower stage. The gradient of that stage is complete last.
  std::vector<Instr> in_order(const std::vector<int>& stages) const;

  /// Returns true if the placement's gradient has this part: a bucket, or a tied pair that contains
  /// the placement's model stage.
  bool exists(int stage, int part) const;

  /// Returns a number that all members of one reduction share and no other reduction has. It is
  /// derived from (model stage, part) or from the tied pair.
  std::int64_t group(int stage, int part) const;
  /// As above, for a REDUCE_GRAD, SYNC_A, SYNC_B or GATHER.
  std::int64_t group(const Instr& sum) const;

  /// Returns the placements of one pipeline that take part in the reduction, one per worker.
  std::vector<int> members(int stage, int part) const;
  /// As above, for a REDUCE_GRAD, SYNC_A, SYNC_B or GATHER.
  std::vector<int> members(const Instr& sum) const;

  /// Returns true if the placement's factors are summed over the copies of its stage.
  bool syncs_factors(int stage) const {
    return copies_[schedule_.placements[stage].model_stage] > 1;
  }
  /// Returns the number of layers of the placement that have factors.
  int factor_layers(int stage) const;
  /// Returns the number of copies that share the placement's inversions; 1: each copy makes all.
  int copies_sharing_inversions(int stage) const;
  /// Returns the number of rounds of the placement's inversions: its layers, divided by the copies
  /// that share them, rounded up.
  int rounds(int stage) const;
  /// The layers of one round: from `first`, below `end`.
  struct Layers {
    int first = 0, end = 0;
  };
  /// Returns the layers of a round of the placement's inversions.
  Layers layers_of(int stage, int round) const;
  /// Returns the layer that an INVERT_A or INVERT_B inverts in this pipeline, or -1 if the copy has
  /// no layer in this round and idles.
  int inverted_layer(const Instr& inversion, int pipeline) const;

  /// Returns, for each instruction of a whole row, true if it inverts or gathers factors of the
  /// previous cycle. This is so if no CURVATURE of its layers stands before it in the row.
  std::vector<bool> of_cycle_before(const std::vector<Instr>& row) const;

  /// Returns true if the plan sums scalars. This includes plans on one worker, because the step's
  /// norm is computed at that instruction.
  bool scalars() const { return scalars_; }

 private:
  int buckets(int model_stage) const;

  const Schedule& schedule_;
  std::vector<std::vector<int>> parts_;
  std::vector<int> copies_;  // by model stage: number of copies that share its gradients
  bool scalars_ = false;
};

/// Returns true if a plan with K-FAC work has inversions or gathers of the previous cycle: the
/// value for Lowering::wraps.
bool wraps_work(const Schedule& schedule);

}  // namespace hetu
