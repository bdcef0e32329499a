// Embedding tables on parameter servers, seen from a worker: a *window*, a parameter of as many
// rows as one step can look up, whose rows are those of the step by numbers of its own. So a table
// may be larger than a worker's memory, and a stage learns nothing of servers. Read by
// executor/job, which fills windows and sends on what their gradients are
// (executor/sync/server_tables.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace hetu {

/// A table of the model that lies on servers.
struct ServedTable {
  int parameter = 0;      ///< index into Graph::parameters
  std::string field;      ///< of the batch: the ids that are looked up
  std::int64_t rows = 0;  ///< of the table
  std::int64_t width = 0;
  std::int64_t window = 0;  ///< rows that a worker holds
};

/// Whether any parameter lies on servers.
bool has_served_tables(const Graph& graph);

/// The same graph with windows in place of the tables on servers, for steps of `samples` samples of
/// one pipeline; `tables` get what they stand for. Ids of the fields named there are to be numbers
/// of rows of the window. Throws InvalidArgument where a table is read by something else than one
/// lookup, or its ids are not a field of their own.
Graph with_windows(const Graph& graph, std::int64_t samples, std::vector<ServedTable>& tables);

}  // namespace hetu
