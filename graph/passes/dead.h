// Removal of what nothing needs.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// The graph without nodes that reach no fetch, loss, gradient of a parameter or next value of a
/// buffer; such parameters and placeholders go too. Names, blocks and the order of what stays are
/// kept.
Graph remove_dead(const Graph& graph);

/// By node: 1 if one of the values comes from it, else 0.
std::vector<char> needed_for(const Graph& graph, const std::vector<ValueId>& values);

/// Values of the fetches of these names. Throws InvalidArgument, naming those there are.
std::vector<ValueId> fetched_values(const Graph& graph, const std::vector<std::string>& names);

/// What training needs: the loss, the gradients of parameters, what replaces buffers, and float32
/// scalars that are fetched, which are all that it reports. And a run that does not train: these
/// values, none: all that is fetched.
std::vector<ValueId> needed_in_training(const Graph& graph);
std::vector<ValueId> needed_in_run(const Graph& graph, bool training,
                                   const std::vector<ValueId>& values);

/// Names of the placeholders that the values come from, in the order of the graph.
std::vector<std::string> fields_for(const Graph& graph, const std::vector<ValueId>& values);

/// What predicts: the part of the graph that the fetches of these names need, forward only, and no
/// other fetch. Names, blocks and the order of what stays are kept. Throws as fetched_values.
Graph part_for(const Graph& graph, const std::vector<std::string>& names);

}  // namespace hetu
