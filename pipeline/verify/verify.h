// The proof that a plan is correct, before it runs: complete, in order, free of deadlock, with one
// weight version per micro-batch, and within memory.
#pragma once
#include "pipeline/ir/schedule.h"
#include "pipeline/verify/needs.h"
#include "pipeline/verify/progress.h"

namespace hetu {

/// Options of a proof.
struct VerifyOptions {
  /// Send slots per ordered pair of workers; 0 means rendezvous.
  int send_slots = kUnboundedSlots;
  double memory_limit = 0;  ///< Most activations per worker, in micro-batches; 0: no bound.
};

/// Proves a compute-only or lowered plan, or throws Plan. The message has one line with the reason,
/// then one line per worker concerned. For a deadlock these workers are the smallest cycle. The
/// proof covers:
/// - Each micro-batch runs exactly once per model stage, all stages in one replica, each on its
///   worker.
/// - Every message is sent once and received once.
/// - Everything can run with this number of send slots.
/// - Reductions are complete, launched in the same order by all members, and run once per update,
///   after the gradients. Scalars are reduced after them.
/// - Each stage is updated after its gradients, with the same micro-batches as every other stage.
/// - No more weight versions exist at once than the plan states.
/// - Peak activations are within the limit.
VerifyReport verify(const Schedule& schedule, const VerifyOptions& options = {});

/// Returns the least number of send slots, at least 1, with which the whole lowered plan runs.
/// Returns 1 for a plan that no number of slots lets run.
int least_send_slots(const Schedule& lowered);

/// Throws Plan with the smallest cycle of waiting workers. Call it only after Progress::run()
/// returned false.
[[noreturn]] void fail_deadlock(const Progress& progress, int send_slots);

}  // namespace hetu
