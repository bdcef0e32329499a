// One walk along each worker's row: what it holds at most, and whether its updates are right. Part
// of verify; the simulator asks it for memory.
#pragma once
#include "pipeline/ir/plan_index.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Throws Plan: an update before its gradients or reductions are whole, a gradient that no update
/// applies, more weight versions alive than stated. The plan's contents and order must be right.
VerifyReport audit_rows(const PlanIndex& index);

}  // namespace hetu
