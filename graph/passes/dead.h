// Removal of nodes that a run doesn't need.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// Returns the graph without dead nodes: those on which no fetch, loss, gradient of a parameter or
/// next value of a buffer depends. Unused parameters and placeholders are removed too. The
/// remaining nodes keep their names, blocks and order.
Graph remove_dead(const Graph& graph);

/// Returns, for each node, 1 if one of the values depends on it, otherwise 0.
std::vector<char> needed_for(const Graph& graph, const std::vector<ValueId>& values);

/// Returns the values of the fetches with these names. Throws InvalidArgument with the known names
/// if there is no such fetch.
std::vector<ValueId> fetched_values(const Graph& graph, const std::vector<std::string>& names);

/// Returns the values that training needs: the loss, the gradients of parameters, the next values
/// of buffers, and float32 scalar fetches. Training reports no other fetch.
std::vector<ValueId> needed_in_training(const Graph& graph);
/// Returns the values that a run needs. Training: see needed_in_training. Otherwise `values`, or
/// all fetches if `values` is empty.
std::vector<ValueId> needed_in_run(const Graph& graph, bool training,
                                   const std::vector<ValueId>& values);

/// Returns the names of the placeholders that the values depend on, in graph order.
std::vector<std::string> fields_for(const Graph& graph, const std::vector<ValueId>& values);

/// Returns the part of the graph that predicts these fetches: forward nodes only, and no other
/// fetch. The remaining nodes keep their names, blocks and order. Throws InvalidArgument as
/// fetched_values does.
Graph part_for(const Graph& graph, const std::vector<std::string>& names);

}  // namespace hetu
