// The part of the audit for servers. Each wave of updates is pushed once and pulled once, in order.
// No forward comes before a pull that its weight version contains.
#pragma once
#include <vector>

#include "pipeline/ir/plan_index.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Checks the events of a pass along the rows. `updates` is the number of updates of the
/// instruction's stage before the event. All functions throw Plan with the worker and the position
/// of an error. The index must outlive this object.
class WaveAudit {
 public:
  explicit WaveAudit(const PlanIndex& index);

  /// Checks that the pulls of its version precede a forward, and records its staleness.
  void forward(int position, int version);
  /// Checks that the previous wave is pushed before an update of the next one.
  void update(int position, int updates);
  /// Checks that a push follows the last update of its wave.
  void push(int position, int updates);
  /// Checks that a pull follows the push of its wave.
  void pull(int position);
  /// Checks that all waves are pushed and pulled, and enters the staleness into the report.
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
  const int wave_;  // updates per wave
  std::vector<Stage> stages_;
  int local_ = 0, global_ = 0;  // most updates that a forward's weights lack
};

}  // namespace hetu
