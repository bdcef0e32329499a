// The part of the audit for K-FAC. It checks the life of every factor:
// - The factor gets every micro-batch of one step exactly once.
// - It is summed over the copies of its stage.
// - It is inverted: by each copy, or by one copy from which the others gather the inverse. Then it
//   is empty.
// - No gradient is multiplied between the two inversions of a layer, and all copies of a stage use
//   new inverses from the same step on.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/ir/plan_index.h"
#include "pipeline/ir/reduction.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Checks the events of a pass along the rows. All functions throw Plan with the worker and the
/// position of an error. Index and reductions must outlive this object. The inverses of a layer's
/// two factors must belong to the same refresh, because the damping of each depends on both traces.
///
/// Source: Osawa et al. 2023 (PipeFisher), section 3; Martens and Grosse 2015, section 6.3
/// (damping).
class FactorAudit {
 public:
  /// Starts with all factors empty.
  FactorAudit(const PlanIndex& index, const Reductions& reductions);

  void forward(int position);
  /// Checks a CURVATURE and adds its micro-batch to the factor.
  void curvature(int position);
  /// Checks a SYNC: the factor must be complete, and not summed yet.
  void sync(int position);
  /// `updates` is the number of updates of the stage before the event, here and in the functions
  /// below.
  void inversion(int position, int updates);
  /// Checks a GATHER: this copy's inversions of the round must be done.
  void gather(int position, int updates);
  /// Checks a PRECONDITION, which multiplies the stage's gradients.
  void precondition(int position, int updates);
  /// Repeats the pass over all rows as the next cycle, for a plan with Lowering::wraps. The first
  /// cycle has no earlier factors to invert. A correct second cycle implies that all later cycles
  /// are correct, because they begin in the same state.
  void repeat();
  /// Checks that no factor is left uninverted, and enters the copies and the age of inverses.
  void finish(VerifyReport& report) const;

 private:
  struct Factor {
    int step = -1;                 // step of the micro-batches in the factor; -1: it is empty
    int pieces = 0;                // micro-batches so far
    std::map<int, int> seen = {};  // position of each micro-batch
    bool synced = false;
    // inverted, but the layer's other factor is not, or the inverses are not gathered
    bool inverted = false;
    int last = -1;  // position of the last CURVATURE
  };
  struct Layer {
    Factor a, b;
    int inverse_of = -1;  // step of the micro-batches in the inverse; -1: of an earlier cycle
    Factor& of(bool inputs) { return inputs ? a : b; }
    const Factor& of(bool inputs) const { return inputs ? a : b; }
  };
  struct Stage {
    std::vector<Layer> layers;
    std::vector<int> missing;  // by micro-batch: CURVATUREs that are still to read it
    int kept = 0, most_kept = 0;
    // most steps between a factor's micro-batches and a gradient that its inverse multiplies
    int oldest = 0;
  };

  // A check that all copies of a stage do the same at the same point of their rows: that a sum has
  // micro-batches of the same step, and that an inverse becomes new in the same step.
  class Agreement {
   public:
    // Enters `value` for the worker's next occurrence of `key`. Returns the value that the first
    // worker entered for this occurrence.
    int other(std::int64_t key, int worker, int value);

   private:
    std::map<std::pair<std::int64_t, int>, int> times_;  // occurrences so far, by key and worker
    std::map<std::int64_t, std::vector<int>> values_;  // values by key, in the order of occurrences
  };

  Layer& layer_at(int position);
  Layer& layer_of(int position, int layer);
  std::vector<int> inverted_layers(int position) const;
  void check_invertible(Layer& layer, int number, int position) const;
  bool is_of_no_cycle(int position) const;
  void renew(int position, int number, int updates);
  int micros_here(int stage, int step) const;
  void check_whole(const Layer& layer, int number, bool inputs, int position) const;
  static std::string factor_name(int layer, bool inputs);

  const PlanIndex& index_;
  const Schedule& schedule_;
  const Reductions& reductions_;
  std::vector<Stage> stages_;
  int steps_before_ = 0;  // steps of the first cycle, once repeat() is called
  Agreement summed_;      // by sync group: the step of the summed micro-batches
  Agreement renewed_;     // by model stage and layer: the first step with the new inverses
};

}  // namespace hetu
