// Replaces tables on parameter servers by windows, and checks that the model permits it.
#include "executor/compile/served_tables.h"

#include <algorithm>

#include "base/error.h"

namespace hetu {
namespace {

// Returns the nodes that read a value.
std::vector<NodeId> readers_of(const Graph& graph, ValueId value) {
  std::vector<NodeId> readers;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<ValueId>& inputs = graph.nodes[n].inputs;
    if (std::count(inputs.begin(), inputs.end(), value) > 0)
      readers.push_back(static_cast<NodeId>(n));
  }
  return readers;
}

// Returns the only lookup that reads a table. Throws InvalidArgument if the table has other
// readers.
const Node& lookup_of(const Graph& graph, const Parameter& table) {
  const std::vector<NodeId> readers = readers_of(graph, table.value);
  const bool one = readers.size() == 1 && graph.nodes[readers[0]].op == "embedding";
  const std::string found = readers.empty() ? "no node"
                                            : fmt::format("{} '{}'", graph.nodes[readers.back()].op,
                                                          graph.nodes[readers.back()].name);
  require(one,
          "table '{}' is on parameter servers, so it must be read by one embedding and nothing "
          "else; it is read by {}{}",
          table.name, found, readers.size() > 1 ? " and other nodes" : "");
  return graph.nodes[readers[0]];
}

// Checks that every reader of the ids accepts row numbers of windows.
void check_ids(const Graph& graph, const Parameter& table, ValueId ids) {
  const Node& from = graph.producer(ids);
  require(from.op == "placeholder",
          "table '{}' is on parameter servers, so its ids must be a field of the data, but {} '{}' "
          "computes them",
          table.name, from.op, from.name);
  for (const NodeId n : readers_of(graph, ids)) {
    const Node& reader = graph.nodes[n];
    bool served = reader.op == "embedding_grad";
    if (reader.op == "embedding")
      for (const Parameter& p : graph.parameters)
        served = served || (p.served && p.value == reader.inputs[0]);
    require(served,
            "field '{}' holds the ids of table '{}' on parameter servers, but {} '{}' also reads "
            "it; give that node a separate field",
            from.name, table.name, reader.op, reader.name);
  }
}

}  // namespace

bool has_served_tables(const Graph& graph) {
  return std::any_of(graph.parameters.begin(), graph.parameters.end(),
                     [](const Parameter& p) { return p.served; });
}

Graph with_windows(const Graph& graph, std::int64_t samples, std::vector<ServedTable>& tables) {
  Graph out = graph;
  tables.clear();
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const Parameter& table = graph.parameters[p];
    if (!table.served) continue;
    const ValueId ids = lookup_of(graph, table).inputs[1];
    check_ids(graph, table, ids);
    const Shape& shape = graph.values[table.value].type.shape;
    ServedTable served{static_cast<int>(p), graph.producer(ids).name, shape[0], shape[1]};
    const std::int64_t lookups = element_count(bind_batch(graph.values[ids].type.shape, samples));
    served.window = std::max<std::int64_t>(1, std::min(served.rows, lookups));
    out.values[table.value].type.shape[0] = served.window;
    for (const GradientUse& use : graph.gradients) {
      if (use.parameter != served.parameter) continue;
      Node& made = out.nodes[graph.values[use.gradient].producer];
      require(made.op == "embedding_grad",
              "table '{}' is on parameter servers, but its gradient is computed by {} '{}' instead "
              "of an embedding",
              table.name, made.op, made.name);
      made.attrs.set("rows", served.window);
      out.values[use.gradient].type.shape[0] = served.window;
    }
    tables.push_back(served);
  }
  check_graph(out);
  return out;
}

}  // namespace hetu
