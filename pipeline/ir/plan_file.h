// Plans as files. CSV has one row per worker, as torch.distributed.pipelining writes it. JSON holds
// the whole IR. Other people's scripts read and write both forms.
#pragma once
#include <optional>
#include <string>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// Facts that a CSV file doesn't contain. A value of 0 or an empty value means: taken from the
/// file.
struct PlanFacts {
  int stages = 0;         ///< Workers; the file must have as many rows.
  int micro_batches = 0;  ///< Micro-batches per step; ids must be below micro_batches * steps.
  int replicas = 0;       ///< CSV: stage ids are replica * model stages + model stage; 0 means 1.
  int steps = 1;
  int pipelines = 1;         ///< Pipelines that the reductions or servers of a lowered file span.
  int staleness = 0;         ///< Staleness D, in waves, of a lowered file with PUSH and PULL.
  bool half_micros = false;  ///< True for `--concat halving`: backward ids are half micro-batches.
  /// "split": marked pairs run as two instructions. "atomic": marked pairs run as one, and the file
  /// must have at least one pair. Empty: as the file states.
  std::string pair_semantics = {};
  std::optional<VersionRule> version_rule = {};
};

/// Reads a plan: JSON if the text begins with '{', otherwise CSV. Both may hold overlap pairs. Both
/// may also hold torch's UNSHARD, RESHARD, WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, which
/// have no meaning here and are dropped. CSV with the names of PyTorch before 2.6 (BW, and B with a
/// separate W) is accepted, too; see torch_csv.h.
///
/// Throws Io if the file can't be read. Throws Config for invalid contents (with file, line and
/// cell, or the JSON key) and for sizes that contradict `facts`. verify() checks whether the plan
/// is correct.
Schedule read_plan(const std::string& path, const PlanFacts& facts = {});

/// As above, from text. `origin` names the text in error messages.
Schedule parse_plan(const std::string& text, const std::string& origin,
                    const PlanFacts& facts = {});

/// Returns the plan in a trace's metadata, or nullopt if there is no plan. Throws as parse_plan().
std::optional<Schedule> plan_of_trace(const Trace& trace, const std::string& origin);

/// Returns the plan as CSV with one unrolled row per worker. A pair that runs as one is written
/// `(0F1;3B0)OVERLAP_F_B`.
std::string to_csv(const Schedule& schedule);

/// Returns the plan as JSON, including `lowering` if the plan is lowered or has lowering options.
std::string to_json(const Schedule& schedule);

/// Returns "newest", "lag1" or "wave".
const char* version_rule_name(VersionRule rule);

/// Parses a name of version_rule_name(). Throws InvalidArgument with the known names.
VersionRule parse_version_rule(const std::string& name);

/// Returns "end", "eager" or "eager-opt".
const char* sync_place_name(SyncPlace place);

/// Parses a name of sync_place_name(). Throws InvalidArgument with the known names.
SyncPlace parse_sync_place(const std::string& name);

}  // namespace hetu
