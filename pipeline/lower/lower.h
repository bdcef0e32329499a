// Lowering: from compute to everything a worker does. Adds messages, reductions and updates;
// changes no order.
#pragma once
#include "base/fields.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Where reductions stand unless told.
inline constexpr SyncPlace kSyncPlace = SyncPlace::EagerOpt;

/// `--sync` of plans and of training.
OptionField sync_field(SyncPlace& sync);

/// `--staleness` of plans and of training.
OptionField staleness_field(int& staleness);

/// The compute-only schedule with a RECV directly before its consumer and a SEND directly after its
/// producer (none between stages on one worker); a REDUCE_GRAD per part of reduction.h before each
/// update, where `how.sync` says and in descending model stage; before updates a REDUCE_SCALARS, if
/// asked for; and, where the plan has no update yet (synchronous methods), one UPDATE per stage at
/// the end of the row; with how.average_weights a PARTIAL_REDUCE after each UPDATE, with
/// how.servers the PUSH and the PULL of each wave (waves.h). The body of a program stays a body.
/// Throws InvalidArgument if the schedule is lowered already, Plan if its placements make no sense.
Schedule lower(const Schedule& schedule, const Lowering& how = {});

/// Returns what lower() made the plan from: the computes of each row in their order, and the
/// updates of an asynchronous method. A plan that isn't lowered comes back as it is. So a plan of
/// another tool with messages of its own can be lowered for the job at hand.
Schedule without_lowering(const Schedule& schedule);

}  // namespace hetu
