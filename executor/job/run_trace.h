// A run laid beside its plan: the measured events of all workers, and the plan simulated with their
// typical times.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A plan as it was run: one step, or several without a flush between them.
struct PlannedRun {
  int first_step = 0;
  Schedule plan;
};

/// What block_costs measured of a model, and which block each of its stages began with; of each
/// pipeline, where they are not cut alike. No blocks: not measured.
struct ModelBlocks {
  std::vector<BlockCost> blocks;
  std::vector<int> first_block;
  std::vector<std::vector<int>> cuts = {};
};

/// Adds predicted events to measured ones: each run once more, as the simulator runs its plan with
/// the typical time of each kind and stage, one run after the other from the first one's start. The
/// metadata get the last plan and costs, with those of the model's blocks and the median latency of
/// the run's own messages.
Trace with_prediction(Trace measured, const std::vector<PlannedRun>& runs,
                      const ModelBlocks& model = {});

/// What a worker wrote into its trace of BlockTimes, as JSON.
std::string blocks_in(const Trace& trace);

/// The metadata get "tables", a list of what all workers wrote under that name into theirs; nothing
/// where none did.
void add_tables(Trace& to, const std::vector<Trace>& workers);

/// One run of `plan` per step that the trace holds.
std::vector<PlannedRun> runs_by_step(const Trace& measured, const Schedule& plan);

/// Says in the metadata that the results of this run mean nothing, since its messages are
/// `payload`.
void label(Trace& trace, const std::string& payload);

/// Writes a file beside and renames it. Throws Io.
void write_beside(const std::string& path, const std::string& text);

}  // namespace hetu
