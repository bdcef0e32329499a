// Compares a run with its plan: the measured events of all workers, and the plan simulated with
// their typical times.
#pragma once
#include <string>
#include <vector>

#include "base/trace.h"
#include "pipeline/cost/cost.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// A plan as it was run: one step, or several steps without a flush between them.
struct PlannedRun {
  int first_step = 0;
  Schedule plan;
};

/// The measured blocks of a model (block_costs) and the first block of each stage. `cuts` has the
/// first blocks of each pipeline if they are not cut alike. No blocks means not measured.
struct ModelBlocks {
  std::vector<BlockCost> blocks;
  std::vector<int> first_block;
  std::vector<std::vector<int>> cuts = {};
};

/// Adds predicted events to measured ones. The simulator runs the plan of each run with the typical
/// time of each kind and stage. Predicted runs follow one another from the start of the first
/// measured run. The metadata receive the last plan and the costs. The costs include those of the
/// model's blocks and the median latency of the run's own messages.
Trace with_prediction(Trace measured, const std::vector<PlannedRun>& runs,
                      const ModelBlocks& model = {});

/// Returns the BlockTimes that a worker wrote into its trace, as JSON.
std::string blocks_in(const Trace& trace);

/// Joins the "tables" lists in the metadata of all workers' traces into one list in the metadata of
/// `to`. Adds nothing if no worker has such a list.
void add_tables(Trace& to, const std::vector<Trace>& workers);

/// Returns one run of `plan` per step that the trace holds.
std::vector<PlannedRun> runs_by_step(const Trace& measured, const Schedule& plan);

/// Marks the results of this run as meaningless in the metadata, because its messages carry
/// `payload`.
void label(Trace& trace, const std::string& payload);

/// Writes a temporary file next to `path` and renames it to `path`. Throws Io.
void write_beside(const std::string& path, const std::string& text);

}  // namespace hetu
