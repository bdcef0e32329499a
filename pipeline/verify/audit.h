// One pass along each worker's row, which finds the most that the worker holds and checks its
// updates. Part of verify. The simulator uses it for memory figures.
#pragma once
#include "pipeline/ir/plan_index.h"
#include "pipeline/verify/needs.h"

namespace hetu {

/// Audits all rows. The contents and the order of the plan must already be proved. Throws Plan for
/// an update before its gradients or reductions are complete, and for a gradient that no update
/// applies. Also throws Plan for more weight versions at once than the plan states.
VerifyReport audit_rows(const PlanIndex& index);

}  // namespace hetu
