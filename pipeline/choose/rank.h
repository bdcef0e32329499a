// Simulation and ranking of every method under given costs. `hetu choose` prints the ranking, and
// `--pipeline choose` trains with its result.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/progress_line.h"
#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// The methods and sizes to try, and the limits.
struct RankOptions {
  int stages = 1;     ///< workers of one pipeline (P)
  int pipelines = 1;  ///< combined by servers for wave methods, and by sums for other methods
  int staleness = 0;  ///< staleness bound of pipelines with servers (D)
  std::vector<int> micro_batches;    ///< per pipeline and step (M)
  std::vector<int> chunks;           ///< for methods that take chunks (V); empty: their default
  std::vector<std::string> methods;  ///< empty: all
  /// the user's own methods among `methods`, as functions that return a plan for M micro-batches
  std::map<std::string, std::function<Schedule(int micro_batches)>> own;
  /// also try methods that update within a step; they are other training algorithms
  bool asynchronous = false;
  bool samples_known = false;  ///< false: `samples` is 1, and times are per micro-batch
  double samples = 1;          ///< samples of a micro-batch; 0: batch / M
  double batch = 0;            ///< samples per pipeline and step
  double limit_micros = 0;     ///< most activations per worker, in micro-batches; 0: no limit
  double limit_bytes = 0;      ///< most bytes per worker; 0: no limit
  SyncPlace sync = kSyncPlace;
  SimulateOptions run;
  ReportProgress progress;  ///< receives the number of plans; may be empty
};

/// Returns the costs of a micro-batch if a step has `micro_batches`. May throw InvalidArgument if
/// there are none.
using CostsOfMicros = std::function<Costs(int micro_batches)>;

/// A method with its sizes, and its prediction.
struct Ranked {
  std::string method;
  Sizes sizes;  ///< costs and run are not set
  bool asynchronous = false;
  double time_per_sample = 0;  ///< over all pipelines, in the costs' unit
  double step_time = 0;
  double makespan = 0;
  double bubble_fraction = 0;
  double peak_activations = 0;  ///< of the worker with the most
  double peak_bytes = 0;        ///< likewise; 0: the costs have no bytes
  int copies = 1;               ///< of the weights, over all pipelines
  /// the cut of the model if stages were cut from blocks; otherwise empty
  std::vector<int> blocks_per_stage = {};
};

/// A method with sizes that is not a candidate, and the reason.
struct NotRanked {
  std::string method;
  Sizes sizes;
  std::string why;  ///< one line
};

/// The result of a ranking.
struct Ranking {
  std::string time_unit;
  bool recompute_guessed = false;  ///< the costs have no time of recompute: a forward is used
  /// False if the samples of a micro-batch are not known. Times per sample are then per
  /// micro-batch.
  bool samples_known = false;
  std::vector<Ranked> ranked;  ///< fastest first; on a tie the one with less memory first
  std::vector<NotRanked> refused;
  std::vector<std::string> notes;  ///< assumptions of the ranking, one line each
};

/// Gives recompute the time of a forward if no stage or block has a time for it, because a plan
/// with recompute would otherwise look too fast. Returns true if it did.
bool guess_recompute(Costs& costs);

/// Simulates every method with each M and V, with and without recompute. Chimera also runs with
/// each number of pairs and each concatenation.
///
/// Costs of a single stage are those of a worker, and V stages on a worker take 1/V each. Other
/// costs must have blocks, or the method's number of stages; otherwise the method is refused.
/// Throws InvalidArgument if `micro_batches` is empty or a method is unknown. Other errors of `own`
/// are not caught.
Ranking rank_methods(const RankOptions& options, const CostsOfMicros& costs);

/// Returns a name such as "chimera M=8 doubling +recompute".
std::string name_of(const std::string& method, const Sizes& sizes);

/// Returns a table of the first `most` entries, with the refused methods and the notes, as lines of
/// text.
std::string to_text(const Ranking& ranking, std::size_t most);

/// Returns a CSV table of all of `ranked`, followed by `refused` with the reason in the last
/// column.
std::string to_csv(const Ranking& ranking);

/// Returns all of `ranked` and `refused` as one JSON object.
std::string to_json(const Ranking& ranking);

}  // namespace hetu
