// Plans as files: CSV (one row per worker, as torch.distributed.pipelining writes it) and JSON (the
// IR whole). The text forms that other people's scripts read and write.
#pragma once
#include <optional>
#include <string>

#include "base/trace.h"
#include "pipeline/ir/schedule.h"

namespace hetu {

/// What a CSV does not say of itself. 0 or nothing: taken from the file, as the contract says.
struct PlanFacts {
  int stages = 0;         ///< workers; the file must have as many rows
  int micro_batches = 0;  ///< per step; ids must be below micro_batches * steps
  int replicas = 0;       ///< CSV: ids are replica * model stages + model stage; 0 is 1
  int steps = 1;
  int pipelines = 1;         ///< that a lowered file's reductions, or its servers, span
  int staleness = 0;         ///< of a lowered file with PUSH and PULL: waves, D
  bool half_micros = false;  ///< `--concat halving`
  /// "split": pairs that are marked to run as one run as two; "atomic": as marked, and there must
  /// be some; as the file says: empty.
  std::string pair_semantics = {};
  std::optional<VersionRule> version_rule = {};
};

/// Reads a plan; JSON where the text begins with '{', else CSV. Both may hold overlap pairs and
/// torch's UNSHARD, RESHARD, WAIT_SEND_F, WAIT_SEND_B and WAIT_REDUCE_GRAD, which say nothing here
/// and are dropped. CSV with the names of PyTorch before 2.6 (BW, and B beside W) is read, too; see
/// torch_csv.h. Throws Io: cannot be read;
/// Config: file, line and cell (JSON: key) of what is wrong, or sizes that do not fit what was
/// stated. Whether the plan is right is verify's to say.
Schedule read_plan(const std::string& path, const PlanFacts& facts = {});

/// The same from text; `origin` names it in messages.
Schedule parse_plan(const std::string& text, const std::string& origin,
                    const PlanFacts& facts = {});

/// The plan in a trace's metadata, if it has one. Throws as parse_plan.
std::optional<Schedule> plan_of_trace(const Trace& trace, const std::string& origin);

/// One row per worker, unrolled; a pair that runs as one is `(0F1;3B0)OVERLAP_F_B`.
std::string to_csv(const Schedule& schedule);

/// The plan JSON of the contract, plus `most_versions` and, for a lowered plan, `lowering`.
std::string to_json(const Schedule& schedule);

/// "newest", "lag1", "wave".
const char* version_rule_name(VersionRule rule);

/// The inverse. Throws InvalidArgument naming the known ones.
VersionRule parse_version_rule(const std::string& name);

/// "end", "eager", "eager-opt".
const char* sync_place_name(SyncPlace place);

/// The inverse. Throws InvalidArgument naming the known ones.
SyncPlace parse_sync_place(const std::string& name);

}  // namespace hetu
