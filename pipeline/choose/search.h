// A search for the grid of workers, the method and the micro-batch size, given the number of
// workers and the global batch. All legal configurations are ranked by the closed model, and the
// first ones are simulated. `hetu choose --workers` prints the result.
// Source: Li and Hoefler, Chimera, SC 2021, section 3.4.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/progress_line.h"
#include "pipeline/choose/closed_model.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// The space to search, and the limits.
struct SearchOptions {
  int workers = 1;                   ///< P = W D
  int global_batch = 1;              ///< samples per step, over all pipelines
  std::vector<std::string> methods;  ///< empty: gpipe, 1f1b, chimera
  double limit_bytes = 0;            ///< per worker; 0: no limit
  int simulated = 10;                ///< number of leading configurations that are simulated
  SyncPlace sync = kSyncPlace;
  SimulateOptions run;
  ReportProgress progress;  ///< receives the number of simulations; may be empty
};

/// Returns the costs of `stages` stages and micro-batches of `micro_batch_size` samples. May throw
/// InvalidArgument or Config if there are none.
using CostsOfGrid = std::function<Costs(int stages, int micro_batch_size)>;

/// A configuration and its predictions.
struct Configuration {
  std::string method;
  Sizes sizes;               ///< stages D, micro-batches N per pipeline, recompute
  int pipelines = 1;         ///< W
  int micro_batch_size = 1;  ///< B
  /// True if no larger B fits for this method and grid. The published search considers only these.
  bool largest = false;
  ClosedStep closed;
  ClosedCurvature curvature;   ///< without K-FAC in the costs, its work takes no time
  double simulated_step = 0;   ///< 0: not simulated
  double simulated_bytes = 0;  ///< activations and weights, without working memory
};

/// A reason for which configurations are excluded, with their number.
struct Excluded {
  std::string why;  ///< one line
  int count = 0;
};

/// The result of a search.
struct Search {
  std::string time_unit;
  std::vector<Configuration> found;  ///< fastest by the closed model first
  std::vector<Excluded> excluded;
  std::vector<std::string> notes;  ///< assumptions of the ranking, one line each
};

/// Searches every method with a closed form, every grid with W D = P, and every B that is a power
/// of two. N = global batch / (B W) must be an integer. Recompute is tried only if no B fits
/// without it. Throws InvalidArgument.
Search search_configurations(const SearchOptions& options, const CostsOfGrid& costs);

/// Returns a table of the first `most` entries, followed by the fastest simulated one, as lines of
/// text.
std::string to_text(const Search& search, int global_batch, std::size_t most);

/// Returns a CSV table of all of `found`, followed by `excluded` with the number of configurations
/// and the reason in the last two columns.
std::string to_csv(const Search& search);

/// Returns all of `found` and `excluded` as one JSON object.
std::string to_json(const Search& search, int global_batch);

}  // namespace hetu
