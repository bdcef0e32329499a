// The proof that a plan is right, before anything runs it: complete, in order, free of deadlock,
// with one weight version per micro-batch, within memory.
#pragma once
#include <cstdint>
#include <vector>

#include "pipeline/progress.h"
#include "pipeline/schedule.h"

namespace hetu {

struct VerifyOptions {
  int send_slots = kUnboundedSlots;  ///< per ordered pair of workers; 0 = rendezvous
  double memory_limit = 0;           ///< most activations per worker in micro-batches; 0: no bound
};

/// What one placement needs at most.
struct StageNeeds {
  int forward_copies = 0;   ///< micro-batches between F and B (or I): copies of what F saves
  int split_copies = 0;     ///< micro-batches between I and W: copies of what I keeps for W
  int live_copies = 0;      ///< micro-batches between F and the end of their backward
  int weight_versions = 1;  ///< weight versions alive at once
  int updates = 0;          ///< in the whole plan
};

struct VerifyReport {
  std::vector<double>
      peak_activations;            ///< per worker, in micro-batches: F +1/V, B -1/V, I, W half
  std::vector<StageNeeds> stages;  ///< per placement
  /// Weight version, in updates, of the forward of micro-batch m on placement p: at p * (micro-
  /// batches of the plan) + m. Empty for plans without updates.
  std::vector<std::int32_t> versions;
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
