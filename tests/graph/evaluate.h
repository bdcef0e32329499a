// Random graphs over a few operators, and a plain evaluator of these operators in double. It is a
// reference for autodiff and passes that needs no kernels.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace hetu {

using Numbers = std::vector<double>;

/// Returns every value of the graph, given the numbers of its placeholders and parameters by node
/// name. The batch is bound to `batch`. Throws Internal for an operator that it does not support.
std::vector<Numbers> evaluate(const Graph& g, const std::map<std::string, Numbers>& leaves,
                              std::int64_t batch);

/// Returns a differentiated graph of about `size` nodes in up to four blocks, which fetches "loss".
/// Its parameters are read once, twice by one node, or in several blocks. It contains constants,
/// reshapes and transposes to fold, and a node that nothing reads.
Graph random_graph(std::mt19937& random, int size);

/// Returns random numbers for the leaves of a graph.
std::map<std::string, Numbers> random_leaves(const Graph& g, std::mt19937& random,
                                             std::int64_t batch);

}  // namespace hetu
