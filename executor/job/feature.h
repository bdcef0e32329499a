// Features of a training job and their needs, as data. A feature is a strategy for sharing weights,
// K-FAC, a dtype, a table on servers and so on. Each feature states its needs next to its own code,
// and check_needs() (job_needs.h) compares them with the job. A new feature adds one record and no
// checks in other features.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace hetu {

/// A property of a job that a feature may need.
enum class Trait : std::uint8_t {
  SeveralPipelines,      ///< at least 2 pipelines
  Flush,                 ///< all stages update together, once per step
  SeparateUpdates,       ///< stages update one by one, and a row repeats after each step
  WorkerUpdates,         ///< workers run the optimizer, not servers
  WorkerTables,          ///< no embedding table is on servers
  UntiedStages,          ///< no two stages share a weight
  SingleCopies,          ///< a pipeline has each stage once
  GradientSums,          ///< workers sum gradients with each other; known after lowering
  OptimizerStates,       ///< the optimizer keeps values beside the weights
  ElementwiseOptimizer,  ///< an update of a weight reads only this weight's values
  NoClipping,            ///< the optimizer clips no norm
  DenseUpdates           ///< each update changes every row of a table
};

/// A trait that a feature needs, and what the user can do in a job that lacks it.
struct Need {
  Trait trait;
  std::string remedy;  ///< a sentence without the full stop
};

/// A feature that the user asked for.
struct Feature {
  std::string name;  ///< for messages: the flag with its value, or a name
  std::vector<Need> needs;
};

}  // namespace hetu
