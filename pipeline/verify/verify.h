// The proof that a plan is right, before anything runs it: complete, in order, free of deadlock,
// with one weight version per micro-batch, within memory.
#pragma once
#include "pipeline/ir/schedule.h"
#include "pipeline/verify/needs.h"
#include "pipeline/verify/progress.h"

namespace hetu {

struct VerifyOptions {
  int send_slots = kUnboundedSlots;  ///< per ordered pair of workers; 0 = rendezvous
  double memory_limit = 0;           ///< most activations per worker in micro-batches; 0: no bound
};

/// Proves a compute-only or lowered plan, or throws Plan. The message is one line with the reason,
/// then one line per worker concerned; for a deadlock those are the smallest cycle. Proved: each
/// micro-batch exactly once per model stage, all its stages in one replica, each on its worker;
/// every message sent and received once; everything can run with this many send slots; reductions
/// complete, launched in one order, once per update and after the gradients, scalars after them;
/// each stage updated after its gradients, with the same micro-batches as every other stage, and no
/// more weight versions alive than the plan states; peak activations within the limit.
VerifyReport verify(const Schedule& schedule, const VerifyOptions& options = {});

/// The least number of send slots, at least 1, with which everything of a lowered plan runs that
/// runs without a bound.
int least_send_slots(const Schedule& lowered);

/// Throws Plan, naming the smallest cycle, unless everything ran. For callers of Progress::run.
[[noreturn]] void fail_deadlock(const Progress& progress, int send_slots);

}  // namespace hetu
