// Every method under given costs, simulated and ranked: what `hetu choose` prints and what
// `--pipeline choose` trains.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pipeline/cost/cost.h"
#include "pipeline/generate/generate.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// What is tried, and how it counts.
struct RankOptions {
  int stages = 1;                    ///< workers of one pipeline, P
  int pipelines = 1;                 ///< of waves they meet at servers, of other methods they sum
  int staleness = 0;                 ///< of those at servers, D
  std::vector<int> micro_batches;    ///< M, per pipeline and step
  std::vector<int> chunks;           ///< V, for methods that take chunks; empty: their own number
  std::vector<std::string> methods;  ///< empty: all
  bool asynchronous = false;  ///< methods that update within a step too: they are other algorithms
  double samples = 1;         ///< of a micro-batch; 0: batch / M
  double batch = 0;           ///< samples per pipeline and step
  double limit_micros = 0;    ///< most activations per worker; 0: none
  double limit_bytes = 0;     ///< most bytes per worker; 0: none
  SyncPlace sync = kSyncPlace;
  SimulateOptions run;
};

/// The costs of a micro-batch where a step has `micro_batches`. May throw InvalidArgument: no such.
using CostsOfMicros = std::function<Costs(int micro_batches)>;

/// A method with its sizes, and what is predicted of it.
struct Ranked {
  std::string method;
  Sizes sizes;  ///< costs and run unset
  bool asynchronous = false;
  double time_per_sample = 0;  ///< of all pipelines together, in the costs' unit
  double step_time = 0;
  double makespan = 0;
  double bubble_fraction = 0;
  double peak_activations = 0;  ///< of the worker with most
  double peak_bytes = 0;        ///< likewise; 0: the costs name no bytes
};

/// A method with its sizes that does not come into question, and why.
struct NotRanked {
  std::string method;
  Sizes sizes;
  std::string why;  ///< one line
};

struct Ranking {
  std::string time_unit;
  bool recompute_guessed = false;  ///< the costs give it no time: it counts as a forward
  std::vector<Ranked> ranked;      ///< the fastest first; of equal ones, that with less memory
  std::vector<NotRanked> refused;
};

/// Simulates every method with each M, V, and without and with recompute; Chimera also with its
/// pairs and ways to concatenate. Costs of one stage for all count as those of P equal stages; they
/// are cut anew (`recut`) where a method has several per worker. Throws InvalidArgument: no sizes,
/// or an unknown method.
Ranking rank_methods(const RankOptions& options, const CostsOfMicros& costs);

/// "chimera M=8 doubling +recompute".
std::string name_of(const std::string& method, const Sizes& sizes);

/// A table of the first `most`, and how many were refused. Lines.
std::string to_text(const Ranking& ranking, std::size_t most);

/// One JSON object: `ranked` and `refused`, whole.
std::string to_json(const Ranking& ranking);

}  // namespace hetu
