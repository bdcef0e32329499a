// Graphs at random over a few operators, and a plain evaluator of those operators in double: an
// oracle for autodiff and passes that needs no kernels.
#pragma once
#include <map>
#include <random>
#include <string>
#include <vector>

#include "graph/builder.h"

namespace hetu {

using Numbers = std::vector<double>;

/// Every value of the graph, from the numbers of its placeholders and parameters by node name; the
/// batch is bound to `batch`. Throws Internal for an operator that it does not know.
std::vector<Numbers> evaluate(const Graph& g, const std::map<std::string, Numbers>& leaves,
                              std::int64_t batch);

/// A graph of about `size` nodes in up to four blocks, with parameters that are read once, twice by
/// one node, and in several blocks; constants; reshapes and transposes to fold; a node that nothing
/// reads. Differentiated; fetches "loss".
Graph random_graph(std::mt19937& random, int size);

/// Numbers for the leaves of a graph.
std::map<std::string, Numbers> random_leaves(const Graph& g, std::mt19937& random,
                                             std::int64_t batch);

}  // namespace hetu
