// A worker's part in embedding tables that lie on parameter servers: before a step it fetches the
// rows that the step looks up into the windows of its stages, through a cache, and at the update it
// sends their gradients, which the servers' optimizer applies; or, where changes may be held back,
// it changes its rows itself and sends what they have changed by. Driven by executor/job. Source of
// the latter: Miao et al. 2021 (HET), section 3.
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

/// What tables on servers are trained with; all but `pipeline` is the same on every worker.
struct TablesOptions {
  int pipeline = 0;
  comm::Group copies;  ///< workers in this one's place, by pipeline
  Optimizer optimizer;
  std::uint64_t seed = 0;
  ps::CacheOptions cache;
};

/// Whether every step is one update of a table by the servers' optimizer, on the sum of all
/// pipelines' gradients, as with an all-reduce: where nothing may be held back. Else each worker
/// takes its own steps, by plain SGD, and servers add them.
bool in_rounds(const ps::CacheOptions& cache);

class ServerTables {
 public:
  /// Opens the tables of `windows` and blocks until the servers have them. Graph, transport and
  /// client must outlive it, and so must the windows' memory. `tables` are those of the whole
  /// model. Throws what ParameterClient::open_rows throws.
  ServerTables(const Graph& graph, const std::vector<ServedTable>& tables,
               const std::vector<TableWindow>& windows, comm::Transport& transport,
               ps::ParameterClient& client, const TablesOptions& options);
  ~ServerTables();

  /// Whether the ids of a field are looked up in a table of this worker's.
  bool reads(const std::string& field) const { return lists_.count(field) > 0; }
  /// The step's ids of such a field, as numbers of rows in the windows; they hold until the next
  /// call for that field. Throws InvalidArgument, naming table and id, if a table has no such row.
  const std::int32_t* renumbered(const std::string& field, const std::int32_t* ids,
                                 std::int64_t count);
  /// Fills the windows with the rows of those ids. Validation reads beside the cache. Blocks.
  void fetch(bool training);
  /// The ids of the next step, where they are known: rows that the cache lacks are asked for beside
  /// compute. Without a cache nothing is.
  void expect(const std::string& field, const std::int32_t* ids, std::int64_t count);
  /// The gradients of a stage's windows go to the servers. Does not block for the network.
  void update(int stage, double rate);
  /// Every change of every worker is on the servers. All workers of the job call it. Blocks.
  void settle();

  /// Weights and optimizer states of a stage's tables, read and written a block of rows at a time;
  /// for settled jobs. What is written counts `step` steps; one pipeline writes, before anyone
  /// trains.
  std::vector<StateTensor> state(int stage, std::int64_t step);

  /// Of all tables of this worker, by name.
  std::vector<std::pair<std::string, ps::CacheCounters>> counters() const;

 private:
  struct Table;
  class Blocks;
  // The ids of a field: in a step, each once and ascending; and as numbers in that list.
  struct List {
    std::vector<std::int64_t> unique;
    std::vector<std::int32_t> numbers;
  };

  void open(Table& table);
  void take(const std::string& field, const std::int32_t* ids, std::int64_t count,
            std::vector<std::int64_t>& unique) const;
  // What a pull waits for: in rounds everyone's pushes so far.
  std::int64_t least(const Table& table) const;
  std::int64_t updates_of(std::int64_t steps) const;

  const Graph& graph_;
  comm::Transport& transport_;
  ps::ParameterClient& client_;
  const TablesOptions options_;
  std::map<std::string, List> lists_;  // by field
  std::vector<std::unique_ptr<Table>> tables_;
  int settled_ = 0;        // times
  bool is_dirty_ = false;  // since then all have pushed
};

}  // namespace hetu
