// Which grid of workers, method and micro-batch for a given number of workers and global batch: all
// that are legal, ranked by the closed model, and the first of them simulated. What `hetu choose
// --workers` prints. Source: Li and Hoefler, Chimera, SC 2021, section 3.4.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pipeline/choose/closed_model.h"
#include "pipeline/lower/lower.h"
#include "pipeline/simulate/simulate.h"

namespace hetu {

/// What is searched.
struct SearchOptions {
  int workers = 1;                   ///< P = W D
  int global_batch = 1;              ///< samples per step, of all pipelines
  std::vector<std::string> methods;  ///< empty: gpipe, 1f1b, chimera
  double limit_bytes = 0;            ///< per worker; 0: none
  int simulated = 10;                ///< how many of the first are simulated
  SyncPlace sync = kSyncPlace;
  SimulateOptions run;
};

/// The costs of `stages` stages and micro-batches of so many samples. May throw InvalidArgument or
/// Config: no such.
using CostsOfGrid = std::function<Costs(int stages, int micro_batch_size)>;

/// One configuration.
struct Configuration {
  std::string method;
  Sizes sizes;               ///< stages D, micro-batches N of a pipeline, recompute
  int pipelines = 1;         ///< W
  int micro_batch_size = 1;  ///< B
  /// Whether no larger B of this method and grid fits: what the published search takes.
  bool largest = false;
  ClosedStep closed;
  ClosedCurvature curvature;   ///< of costs that know K-FAC's; else nothing takes time
  double simulated_step = 0;   ///< 0: not simulated
  double simulated_bytes = 0;  ///< activations and weights, without working memory
};

/// What does not come into question, and how often.
struct Excluded {
  std::string why;  ///< one line
  int count = 0;
};

struct Search {
  std::string time_unit;
  std::vector<Configuration> found;  ///< the fastest of the closed model first
  std::vector<Excluded> excluded;
  std::vector<std::string> notes;  ///< what the ranking rests on, one line each
};

/// Every method with a closed form, W D = P, and B a power of two with
/// N = global batch / (B W) whole. Recompute comes in where a method and grid fits with no B
/// otherwise. Throws InvalidArgument.
Search search_configurations(const SearchOptions& options, const CostsOfGrid& costs);

/// A table, of the first `most`; the fastest simulated one behind it. Lines.
std::string to_text(const Search& search, int global_batch, std::size_t most);

/// One JSON object: `found` and `excluded`, whole.
std::string to_json(const Search& search, int global_batch);

}  // namespace hetu
