// What a worker sees of the parameter servers of its job: tables of weights that they hold, what it
// adds to them, and what it reads. Implemented over ZeroMQ (connect_servers) and for threads of one
// process (local_servers.h). Read by executor/sync.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/server/rows.h"
#include "ps/server/update_rule.h"

namespace hetu::ps {

/// Float32 values under one name, flat. Servers hold a part each, split by bytes; nobody sees how.
struct Table {
  std::string name;           ///< "stage 2"; the same for all who share it
  std::int64_t elements = 0;  ///< more than 0
  int members = 1;            ///< who push: 0…members-1
  std::optional<ServerOptimizer> optimizer =
      std::nullopt;        ///< of the servers; without one, pushes are added
  Rule rule = Rule::Each;  ///< when pushes become an update

  UpdateRule update_rule() const { return {rule, optimizer}; }
};

/// Rows of which a worker needs few at a time: servers make them when they are first asked for, so
/// that a table may be larger than a worker's memory. An optimizer changes the rows that are pushed
/// and no others; its bias correction counts the updates of the table.
struct SparseTable {
  std::string name;
  std::int64_t rows = 0;  ///< more than 0
  int width = 0;          ///< elements of a row, more than 0
  int members = 1;
  std::optional<ServerOptimizer> optimizer = std::nullopt;
  Rule rule = Rule::Each;
  RowsInit first = {};
};

/// Rows that a pull asks for, in any order. The memory must stay until wait() returns.
struct RowPull {
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;
  float* into = nullptr;  ///< count x width
  int plane = 0;          ///< 0: values; else what the optimizer keeps
  /// In: the version of each row that stands in `into`, below 0: none does. Out: the version that
  /// stands there now. A version counts the updates of a row. Only rows that have seen more than
  /// `bound` updates since are sent. nullptr: all are.
  std::int64_t* versions = nullptr;
  std::int64_t bound = 0;
};

/// What the servers' optimizer keeps beside the values of a table.
struct OptimizerStates {
  std::vector<std::vector<float>> states;  ///< as optimizer_state_name counts them
  std::int64_t updates = 0;                ///< that the values have seen: bias correction
};

/// Pulls that wait for nobody.
inline constexpr std::int64_t kAnyClock = std::numeric_limits<std::int64_t>::min();

/// What a pull has found.
struct Pulled {
  /// Of each part of the table in the order of its elements: pushes that it had added, since it was
  /// made, of all members together.
  std::vector<std::int64_t> pushes;
  std::vector<std::int64_t> updates;  ///< of each part, those before the table was made included
  std::int64_t arrival_ns = 0;        ///< of its last byte, as comm::now_ns()
};

struct ParameterOptions {
  int worker = 0;          ///< its number, for messages to people
  double timeout_s = 300;  ///< deadline of open, wait and flush (HETU_TIMEOUT)
};

/// One worker's lines to all servers of the job. One thread of the worker calls it. Throws Comm,
/// naming the server, where one is lost for good; the client is then dead.
class ParameterClient {
 public:
  virtual ~ParameterClient() = default;

  /// Joins a table as `member`. Blocks until every server has its part: the values of whoever comes
  /// first, `initial`, which are the same on all, and so are `first`, the optimizer's states;
  /// without them these are zeros. Returns a number for the calls below. Throws InvalidArgument:
  /// members that do not agree on the table, a member twice, an optimizer that servers cannot run.
  virtual int open(const Table& table, int member, const float* initial,
                   const OptimizerStates* first = nullptr) = 0;

  /// Values for a push, as long as the table and unset: memory of an earlier push where servers
  /// have one already, for fresh memory costs more than filling it.
  virtual std::vector<float> values_to_push(int table) = 0;
  /// Adds `delta`, as long as the table, to the servers' values: exactly once, whatever is lost and
  /// sent again on the way. This member's clock, 0 at first, rises by one. Never blocks for the
  /// network; the client keeps the values until every server has said that it has them. For tables
  /// without an optimizer.
  virtual void push(int table, std::vector<float> delta) = 0;
  /// The same for tables with one: a gradient, and the learning rate of its update. In a round, the
  /// rate is that of the first member.
  virtual void push(int table, std::vector<float> gradient, double rate) = 0;

  /// As open(), of a sparse table.
  virtual int open_rows(const SparseTable& table, int member) = 0;
  /// Pushes changes of rows or, with an optimizer, their gradients and the rate; ids may repeat
  /// (merge_rows). This member's clock rises by one unless more is to come (`last` false), which
  /// then belongs to the same update. Exactly once, and does not block, as push().
  virtual void push_rows(int table, Rows rows, double rate = 0, bool last = true) = 0;
  /// Replaces values (plane 0) or a state of some rows, `updates` being what the table has seen:
  /// for whoever restores a table, before anyone pushes. ids may not repeat.
  virtual void set_rows(int table, const Rows& rows, int plane, std::int64_t updates) = 0;
  /// As pull(), of rows of a sparse table, of which pull() and states() read all. Pulled then
  /// counts per server.
  virtual void pull_rows(int table, std::int64_t least, const RowPull& rows) = 0;

  /// Asks for the values as soon as the clock of every member is at least `least`, after this
  /// client's own pushes so far. One at a time per table. `into` must stay until wait() returns.
  /// `to_come`: after so many pushes more, that are to follow. A pull that waits when the last of
  /// the pushes it asks for comes finds these and no later ones, so that with `least` the clock of
  /// all after a round everyone hears the same.
  virtual void pull(int table, std::int64_t least, float* into, std::int64_t to_come = 0) = 0;

  /// Sleeps until the pull has filled its memory. Throws Timeout, naming `what` and whom it waits
  /// for; Comm.
  virtual Pulled wait(int table, const std::function<std::string()>& what) = 0;

  /// Reads what the optimizer keeps and, unless `values` is null, the values, as they are after
  /// this client's own pushes. Blocks. To be called when nobody pushes: after a pull that has
  /// everyone's pushes, and before anyone goes on. Throws Internal where parts have seen different
  /// numbers of updates, as then; Timeout, Comm.
  virtual OptimizerStates states(int table, float* values) = 0;

  /// Sleeps until every push is acknowledged. Throws Timeout, Comm.
  virtual void flush() = 0;

  /// This worker has ended in order: nobody waits for it any more. Called by the destructor, too,
  /// unless an exception passes.
  virtual void leave() = 0;
};

/// Connects to the servers that heturun has started (HETU_SERVERS, config/env.h). Throws Config if
/// the address is none, Comm or Timeout if one does not answer, Unsupported in a build without
/// ZeroMQ.
std::unique_ptr<ParameterClient> connect_servers(const std::string& address,
                                                 const ParameterOptions& options);

}  // namespace hetu::ps
