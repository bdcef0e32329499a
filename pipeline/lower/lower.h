// Lowering: turns a plan of computations into a plan of everything that a worker does. It adds
// messages, reductions and updates, and keeps the order of the computations.
#pragma once
#include "base/fields.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Default position of reductions in a row.
inline constexpr SyncPlace kSyncPlace = SyncPlace::EagerOpt;

/// Returns the option `--sync` of plans and of training.
OptionField sync_field(SyncPlace& sync);

/// Returns the option `--staleness` of plans and of training.
OptionField staleness_field(int& staleness);

/// Returns the lowered form of a compute-only schedule. Lowering adds:
/// - a RECV directly before its consumer and a SEND directly after its producer, except between
///   stages on one worker;
/// - before each update, a REDUCE_GRAD per part (reduction.h), at the position that `how.sync`
///   names and in the order of Reductions::in_order();
/// - with how.reduce_scalars, a REDUCE_SCALARS before the updates;
/// - for plans without updates (synchronous methods), one UPDATE per stage at the end of the row;
/// - with how.averages(), a PARTIAL_REDUCE after each UPDATE;
/// - with how.has_servers(), the PUSH and the PULL of each wave (waves.h).
///
/// The body of a program stays a body, unless reductions have to be inserted into it. Throws
/// InvalidArgument if the schedule is lowered already, or as check_pipelines(). Throws Plan if its
/// placements are invalid.
Schedule lower(const Schedule& schedule, const Lowering& how = {});

/// Returns the compute-only plan from which lower() made a plan: the computations of each row in
/// their order, and the updates of an asynchronous method. A plan that isn't lowered is returned
/// unchanged. With this function, another tool's plan that has its own messages can be lowered
/// again with other options.
Schedule without_lowering(const Schedule& schedule);

}  // namespace hetu
