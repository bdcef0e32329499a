// The part of the audit that concerns K-FAC: each factor gets every micro-batch of one step once,
// is summed, inverted, and then empty; no gradient meets half of a refresh.
#pragma once
#include <map>
#include <string>
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
  void inversion(int position);
  /// The stage's gradients are multiplied, before its update number `updates` (from 0).
  void precondition(int position, int updates);
  /// The end of the rows; enters copies and the age of inverses.
  void finish(VerifyReport& report) const;

 private:
  struct Factor {
    int step = -1;                 // whose micro-batches go in; -1: it is empty
    int pieces = 0;                // of them so far
    std::map<int, int> seen = {};  // by micro-batch: position
    bool synced = false;
    bool inverted = false;  // and the layer's other one is not
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

  Layer& layer_at(int position);
  int micros_here(int stage, int step) const;
  void check_whole(const Layer& layer, bool inputs, int position) const;
  std::string factor_name(int position, bool inputs) const;

  const PlanIndex& index_;
  const Schedule& schedule_;
  const Reductions& reductions_;
  std::vector<Stage> stages_;
  std::vector<std::vector<int>> summed_steps_;  // by sync group in order: steps of its sums
  std::vector<std::int64_t> groups_;            // which group that is
  std::vector<std::vector<int>> times_;         // by group: sums so far, by worker
};

}  // namespace hetu
