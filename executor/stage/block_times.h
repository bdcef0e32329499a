// How long each block of a model takes, measured while its stages run: forward, input gradient and
// weight gradient apart, also where one function makes both gradients. With the blocks' sizes they
// are costs of any cut.
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

/// Of one worker. A sample is what one run of a function spent in one block and phase.
class BlockTimes {
 public:
  /// The graph must outlive it.
  explicit BlockTimes(const Graph& graph) : graph_(graph) {}

  /// A function begins.
  void begin();
  /// The kernel of this node, and what belongs to it, has run since the last call.
  void ran(NodeId node);
  /// The function has ended.
  void end();

  /// [{"block": 3, "phase": "forward", "us": [...]}, …]
  std::string json() const;

 private:
  using Part = std::pair<int, Phase>;

  const Graph& graph_;
  std::int64_t last_ns_ = 0;
  std::map<Part, std::int64_t> running_ns_;
  std::map<Part, std::vector<float>> samples_us_;
};

/// What the costs of a block depend on beside the model.
struct BlockSizes {
  std::int64_t micro_batch = 1;  ///< samples
  std::int64_t state_bytes = 0;  ///< what the optimizer keeps for each number of a weight
  double sum_ms_per_byte = 0;    ///< of a gradient, over its copies
};

/// What all blocks of a graph come to, in ms and bytes of one micro-batch: the typical times of
/// all workers' samples (their `json`), a recompute as a forward, what gradients read of a
/// forward's results, what a cut behind the block sends, weights with gradient and optimizer
/// tensors, the gradient's sum, and the operations that cuts are balanced by. Empty where a block
/// was not measured. Throws Io: a text that is none of BlockTimes.
std::vector<BlockCost> block_costs(const Graph& graph, const std::vector<std::string>& measured,
                                   const BlockSizes& sizes);

/// Costs without a measurement: a stage takes as long as it has floating-point operations.
Costs flop_costs(const Graph& graph, int stages);

/// Floating-point operations of each block, by which stages are balanced.
std::vector<double> block_flops(const Graph& graph);

}  // namespace hetu
