// A worker's interface to the parameter servers of its job: tables of weights, pushes and pulls.
// Implemented over ZeroMQ (connect_servers) and for threads of one process (local_servers.h). Read
// by executor/sync.
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

/// Float32 values under one name, flat. The servers hold one part each, of similar size, which
/// callers don't see.
struct Table {
  std::string name;           ///< "stage 2"; equal for all members
  std::int64_t elements = 0;  ///< above 0
  int members = 1;            ///< members that push, with numbers 0 to members-1
  std::optional<ServerOptimizer> optimizer =
      std::nullopt;        ///< run by the servers; without one, pushes are added
  Rule rule = Rule::Each;  ///< when pushes become an update

  /// Returns the rule in the form that servers take.
  UpdateRule update_rule() const { return {rule, optimizer}; }
};

/// Rows of which a worker needs few at a time. Servers create rows on first use, so that a table
/// may exceed a worker's memory. An optimizer changes only the rows that are pushed; its bias
/// correction counts the updates of the table.
struct SparseTable {
  std::string name;
  std::int64_t rows = 0;  ///< above 0
  int width = 0;          ///< elements of a row, above 0
  int members = 1;
  std::optional<ServerOptimizer> optimizer = std::nullopt;
  Rule rule = Rule::Each;
  RowsInit first = {};
};

/// The rows that a pull asks for, in any order. The memory must stay valid until wait() returns.
struct RowPull {
  const std::int64_t* ids = nullptr;
  std::int64_t count = 0;
  float* into = nullptr;  ///< shape: count x width
  int plane = 0;          ///< 0: values; otherwise an optimizer state
  /// In: the version of each row in `into`, or a negative number if `into` doesn't have the row.
  /// Out: the version that `into` has after the pull. A version counts the updates of a row. The
  /// servers send only rows that have had more than `bound` updates since. nullptr: they send all
  /// rows.
  std::int64_t* versions = nullptr;
  std::int64_t bound = 0;
};

/// The states of the servers' optimizer for a table.
struct OptimizerStates {
  std::vector<std::vector<float>> states;  ///< in the order of optimizer_state_name
  std::int64_t updates = 0;                ///< updates of the values, for bias correction
};

/// Clock for pulls that wait for no member.
inline constexpr std::int64_t kAnyClock = std::numeric_limits<std::int64_t>::min();

/// The result of a pull.
struct Pulled {
  /// For each part of the table, in order of elements: pushes of all members that the part has
  /// applied since it was created.
  std::vector<std::int64_t> pushes;
  /// for each part: updates, including those before the table was opened
  std::vector<std::int64_t> updates;
  std::int64_t arrival_ns = 0;  ///< time of the last byte, as comm::now_ns()
};

/// Options of a client.
struct ParameterOptions {
  int worker = 0;          ///< the worker's number, for error texts
  double timeout_s = 300;  ///< deadline of open, wait and flush, in seconds (HETU_TIMEOUT)
};

/// A worker's connections to all servers of the job. One thread of the worker calls it. All
/// functions throw Comm, with the server's name, if a server is lost for good. The client is then
/// dead.
class ParameterClient {
 public:
  virtual ~ParameterClient() = default;

  /// Joins a table as `member` and returns the table's number for the calls below. Blocks until
  /// every server has its part. The values come from the first member to join. `initial` must be
  /// the same on all members, and so must `first`, the optimizer's states. Without `first` the
  /// states are zeros. Throws InvalidArgument if members disagree on the table, if a member joins
  /// twice, or if servers can't run the optimizer.
  virtual int open(const Table& table, int member, const float* initial,
                   const OptimizerStates* first = nullptr) = 0;

  /// Returns a vector for a push, as long as the table, with unspecified values. It reuses the
  /// memory of an earlier push that all servers have acknowledged, because fresh memory costs more
  /// than filling it.
  virtual std::vector<float> values_to_push(int table) = 0;
  /// Adds `delta`, as long as the table, to the servers' values. The servers apply it exactly once,
  /// even if messages are lost and repeated. Increases this member's clock, which begins at 0, by
  /// one. Never blocks for the network: the client keeps the values until every server has
  /// acknowledged them. Only for tables without an optimizer.
  virtual void push(int table, std::vector<float> delta) = 0;
  /// As above, for tables with an optimizer: pushes a gradient and the learning rate of its update.
  /// A round uses the rate of its first member.
  virtual void push(int table, std::vector<float> gradient, double rate) = 0;

  /// Joins a sparse table, as open() does.
  virtual int open_rows(const SparseTable& table, int member) = 0;
  /// Pushes changes of rows or, with an optimizer, their gradients and the rate. Ids may repeat
  /// (merge_rows). Increases this member's clock by one unless `last` is false, which announces
  /// more pieces of the same update. Exactly once and without blocking, as push().
  virtual void push_rows(int table, Rows rows, double rate = 0, bool last = true) = 0;
  /// Replaces values (plane 0) or an optimizer state of some rows. `updates` is the number of
  /// updates that the table has received. Used to restore a table before any member pushes. Ids may
  /// not repeat.
  virtual void set_rows(int table, const Rows& rows, int plane, std::int64_t updates) = 0;
  /// Pulls rows of a sparse table, as pull() does. pull() and states() read all rows of a sparse
  /// table. The counts in Pulled are then per server.
  virtual void pull_rows(int table, std::int64_t least, const RowPull& rows) = 0;

  /// Asks for the values as soon as every member's clock is at least `least` and all of this
  /// client's own pushes so far are applied. One pull at a time per table. `into` must stay valid
  /// until wait() returns.
  ///
  /// With `to_come` > 0 the pull also waits for that many later pushes of this client. A pull that
  /// is waiting when its last push arrives gets these pushes and no later ones. If `least` is the
  /// clock of all members after a round, every member therefore gets the same values.
  virtual void pull(int table, std::int64_t least, float* into, std::int64_t to_come = 0) = 0;

  /// Blocks until the pull has filled its memory. Throws Timeout, with `what` and the members that
  /// it waits for; Comm.
  virtual Pulled wait(int table, const std::function<std::string()>& what) = 0;

  /// Reads the optimizer's states and, unless `values` is null, the values, after this client's own
  /// pushes. Blocks. Call it while no member pushes: after a pull that has all pushes, and before
  /// any member continues. Throws Internal if parts have different numbers of updates, which shows
  /// that a member has pushed; Timeout, Comm.
  virtual OptimizerStates states(int table, float* values) = 0;

  /// Blocks until every push is acknowledged. Throws Timeout, Comm.
  virtual void flush() = 0;

  /// Ends this worker in order: no member waits for it any more. The destructor calls it, too,
  /// unless an exception is in flight.
  virtual void leave() = 0;
};

/// Connects to the servers that heturun has started (HETU_SERVERS, config/env.h). Throws Config for
/// an invalid address, Comm or Timeout if a server does not answer, Unsupported in a build without
/// ZeroMQ.
std::unique_ptr<ParameterClient> connect_servers(const std::string& address,
                                                 const ParameterOptions& options);

}  // namespace hetu::ps
