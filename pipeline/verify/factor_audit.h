// The part of the audit that concerns K-FAC: each factor gets every micro-batch of one step once,
// is summed, inverted, by one copy of its stage and gathered by the others or by each, and then
// empty; no gradient meets half of a refresh, and all copies use its inverses from one step on.
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

/// Is told what a walk along the rows meets. Throws Plan, naming worker and place. Index and
/// reductions must outlive it.
/// Source: Osawa et al. 2023 (PipeFisher), section 3; the inverses of a layer's two factors are of
/// one refresh, as the damping of each goes by both traces (Martens and Grosse 2015, section 6.3).
class FactorAudit {
 public:
  FactorAudit(const PlanIndex& index, const Reductions& reductions);

  void forward(int position);
  void curvature(int position);
  void sync(int position);
  /// Before the stage's update number `updates` (from 0), here and below.
  void inversion(int position, int updates);
  void gather(int position, int updates);
  /// The stage's gradients are multiplied.
  void precondition(int position, int updates);
  /// Of a plan whose work wraps: what has been met, once more, as the cycle after. The first cycle
  /// has no factors to invert before its own; what holds for the second one holds for all after it,
  /// which begin alike.
  void repeat();
  /// The end of the rows; enters copies and the age of inverses.
  void finish(VerifyReport& report) const;

 private:
  struct Factor {
    int step = -1;                 // whose micro-batches go in; -1: it is empty
    int pieces = 0;                // of them so far
    std::map<int, int> seen = {};  // by micro-batch: position
    bool synced = false;
    bool inverted = false;  // and the layer's other one is not, or neither is gathered
    int last = -1;          // position of the last piece
  };
  struct Layer {
    Factor a, b;
    int inverse_of = -1;  // step; -1: of a cycle before
    Factor& of(bool inputs) { return inputs ? a : b; }
    const Factor& of(bool inputs) const { return inputs ? a : b; }
  };
  struct Stage {
    std::vector<Layer> layers;
    std::vector<int> missing;  // by micro-batch: pieces to come that read what it leaves
    int kept = 0, most_kept = 0;
    int oldest = 0;  // most steps between a factor's micro-batches and what its inverse multiplies
  };

  // What all copies of a stage do at the same point of their rows: whose micro-batches a sum has,
  // in which step an inverse is new.
  class Agreement {
   public:
    // The value of that worker's next time; what another worker had there, else the same.
    int other(std::int64_t key, int worker, int value);

   private:
    std::map<std::pair<std::int64_t, int>, int> times_;  // by key and worker
    std::map<std::int64_t, std::vector<int>> values_;    // by key, in order
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
  int steps_before_ = 0;  // of the first cycle, once that is met
  Agreement summed_;      // by sync group: the step whose micro-batches are summed
  Agreement renewed_;     // by model stage and layer: the step from which on its inverses are new
};

}  // namespace hetu
