// The part of the audit that concerns servers: each wave of updates is pushed and pulled once, in
// order, and no forward comes before a pull that its weights have in them.
#pragma once
#include <vector>

#include "pipeline/ir/plan_index.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Is told what a walk along the rows meets; `updates` are those of the instruction's stage before
/// it. Throws Plan, naming worker and place. The index must outlive it.
class WaveAudit {
 public:
  explicit WaveAudit(const PlanIndex& index);

  void forward(int position, int version);
  void update(int position, int updates);
  void push(int position, int updates);
  void pull(int position);
  /// The end of the rows; enters the staleness.
  void finish(VerifyReport& report) const;

 private:
  struct Stage {
    int pushes = 0;
    int pulls = 0;
    int last_push = -1;  // position
  };

  void check_servers(int position) const;
  Stage& stage_of(int position) { return stages_[index_.at(position).stage]; }

  const PlanIndex& index_;
  const Lowering& how_;
  const bool waves_;
  const int wave_;  // micro-batches, and updates
  std::vector<Stage> stages_;
  int local_ = 0, global_ = 0;  // updates that some forward's weights lack
};

}  // namespace hetu
