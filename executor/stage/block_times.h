// Times of each block of a model, measured while its stages run. Forward, input gradient and weight
// gradient are timed separately, also where one function computes both gradients. Together with the
// sizes of the blocks, the times give the costs of any cut.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "pipeline/cost/cost.h"

namespace hetu {

/// Block times of one worker. A sample is the time that one run of a function spent in one block
/// and phase.
class BlockTimes {
 public:
  /// The graph must outlive it.
  explicit BlockTimes(const Graph& graph) : graph_(graph) {}

  /// Marks the start of a function.
  void begin();
  /// Adds the time since the last call to the block and phase of `node`. Call it after the node's
  /// kernel and everything that belongs to the node has run.
  void ran(NodeId node);
  /// Marks the end of a function and stores one sample per block and phase.
  void end();

  /// Returns the samples as JSON: [{"block": 3, "phase": "forward", "us": [...]}, …]
  std::string json() const;

 private:
  using Part = std::pair<int, Phase>;

  const Graph& graph_;
  std::int64_t last_ns_ = 0;
  std::map<Part, std::int64_t> running_ns_;
  std::map<Part, std::vector<float>> samples_us_;
};

/// Inputs to the costs of a block that don't follow from the model.
struct BlockSizes {
  std::int64_t micro_batch = 1;  ///< samples
  std::int64_t state_bytes = 0;  ///< optimizer state bytes per weight element
  double sum_ms_per_byte = 0;    ///< time to sum one byte of gradient over its copies
};

/// Returns the costs of all blocks of a graph, in ms and bytes per micro-batch. `measured` holds
/// the BlockTimes::json of each worker, and times are typical values over the samples of all
/// workers. A recompute costs as much as a forward. The cost of a block also contains these
/// figures: the activation bytes that its gradients read; the bytes that a cut behind the block
/// sends; the bytes of weights, gradients and optimizer state; the time of the gradient sum; and
/// the operations by which cuts are balanced. Returns an empty vector if any block has no forward
/// time. Throws Io if a text isn't the JSON of BlockTimes.
std::vector<BlockCost> block_costs(const Graph& graph, const std::vector<std::string>& measured,
                                   const BlockSizes& sizes);

/// Returns costs without a measurement: the time of a stage is its number of floating-point
/// operations.
Costs flop_costs(const Graph& graph, int stages);

/// Returns the floating-point operations of each block, by which stages are balanced.
std::vector<double> block_flops(const Graph& graph);

}  // namespace hetu
