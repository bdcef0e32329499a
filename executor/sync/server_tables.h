// Embedding tables on parameter servers, as a worker uses them. Before a step, the rows that the
// step looks up are fetched through a cache into the windows of the stages. At the update their
// gradients are sent, and the servers' optimizer applies them. If changes may be held back, the
// worker changes its rows itself and sends the changes (source: Miao et al. 2021 (HET), section 3).
// Driven by executor/job.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/compile/served_tables.h"
#include "executor/stage/stages.h"
#include "executor/state/state_tensor.h"
#include "graph/graph.h"
#include "net/transport/collective.h"
#include "ps/client/parameter_client.h"
#include "ps/client/row_cache.h"

namespace hetu {

/// Settings for training tables on servers. All but `pipeline` are the same on every worker.
struct TablesOptions {
  int pipeline = 0;
  comm::Group copies;  ///< this worker's counterparts, by pipeline
  Optimizer optimizer;
  std::uint64_t seed = 0;
  ps::CacheOptions cache;
};

/// Returns true if every step is one update by the servers' optimizer, on the sum of all pipelines'
/// gradients, as with an all-reduce. This holds if the cache may not hold back changes. Otherwise
/// each worker takes its own steps by plain SGD, and the servers add them.
bool in_rounds(const ps::CacheOptions& cache);

/// The tables on servers that a worker's stages read.
class ServerTables {
 public:
  /// Opens the tables of `windows` and waits until the servers have them. `tables` are those of the
  /// whole model. Graph, transport, client and the windows' memory must outlive the object. Throws
  /// the errors of ParameterClient::open_rows.
  ServerTables(const Graph& graph, const std::vector<ServedTable>& tables,
               const std::vector<TableWindow>& windows, comm::Transport& transport,
               ps::ParameterClient& client, const TablesOptions& options);
  ~ServerTables();

  /// Returns true if the ids of the field are looked up in a table of this worker.
  bool reads(const std::string& field) const { return lists_.count(field) > 0; }
  /// Returns the step's ids of a field as row numbers of the windows. They are valid until the next
  /// call for the field. Throws InvalidArgument, naming table and id, if a table has no such row.
  const std::int32_t* renumbered(const std::string& field, const std::int32_t* ids,
                                 std::int64_t count);
  /// Fills the windows with the rows of the ids passed to renumbered(). Validation bypasses the
  /// cache. Blocks.
  void fetch(bool training);
  /// Announces the ids of the next step, if they are known. Rows missing in the cache are requested
  /// while compute goes on. Does nothing without a cache.
  void expect(const std::string& field, const std::int32_t* ids, std::int64_t count);
  /// Sends the gradients of a stage's windows to the servers. Does not wait for the network.
  void update(int stage, double rate);
  /// Waits until the servers have every change of every worker. Collective over all workers of the
  /// job.
  void settle();

  /// Returns weights and optimizer states of a stage's tables, which are read and written in blocks
  /// of rows. Call it after settle(). Written values count as those after `step` steps. A single
  /// pipeline writes, before training starts.
  std::vector<StateTensor> state(int stage, std::int64_t step);

  /// Returns the cache counters of all tables of this worker, by name.
  std::vector<std::pair<std::string, ps::CacheCounters>> counters() const;

 private:
  struct Table;
  class Blocks;
  // The ids of a field in a step: each distinct id once, ascending; and the batch's ids as indices
  // into that list.
  struct List {
    std::vector<std::int64_t> unique;
    std::vector<std::int32_t> numbers;
  };

  void open(Table& table);
  void take(const std::string& field, const std::int32_t* ids, std::int64_t count,
            std::vector<std::int64_t>& unique) const;
  // Returns the clock that a pull requires: with in_rounds(), the pushes of all pipelines so far.
  std::int64_t least(const Table& table) const;
  std::int64_t updates_of(std::int64_t steps) const;

  const Graph& graph_;
  comm::Transport& transport_;
  ps::ParameterClient& client_;
  const TablesOptions options_;
  std::map<std::string, List> lists_;  // by field
  std::vector<std::unique_ptr<Table>> tables_;
  int settled_ = 0;        // number of barriers that settle() has started
  bool is_dirty_ = false;  // this worker has pushed since the last settle()
};

}  // namespace hetu
