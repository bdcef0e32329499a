// Embedding tables on parameter servers. A worker holds a *window* of such a table: a parameter
// with as many rows as one step can look up. Ids are replaced by row numbers within the window,
// different in each step. So a table may be larger than a worker's memory, and stages don't know
// about servers. executor/job fills the windows and sends their gradients to the servers
// (executor/sync/server_tables.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// A table of the model that is stored on servers.
struct ServedTable {
  int parameter = 0;      ///< index into Graph::parameters
  std::string field;      ///< field of the batch with the looked-up ids
  std::int64_t rows = 0;  ///< rows of the whole table
  std::int64_t width = 0;
  std::int64_t window = 0;  ///< rows that a worker holds
};

/// Returns true if any parameter is on servers.
bool has_served_tables(const Graph& graph);

/// Returns the graph with windows in place of the tables on servers, for steps of `samples` samples
/// in one pipeline. `tables` receives the replaced tables. The ids in the named fields must then be
/// row numbers of the window. Throws InvalidArgument if anything except a single lookup reads a
/// table, or if its ids aren't a field of their own.
Graph with_windows(const Graph& graph, std::int64_t samples, std::vector<ServedTable>& tables);

}  // namespace hetu
