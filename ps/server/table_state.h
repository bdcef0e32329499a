// A store's knowledge of its workers and tables. Read by the store's own sources only. New fields
// must be saved, too: store_saved.h doesn't compile until they are listed there.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/client_slot.h"
#include "ps/server/memory_budget.h"
#include "ps/server/part_state.h"
#include "ps/server/row_table.h"
#include "ps/server/split.h"
#include "ps/server/status.h"

namespace hetu::ps::server {

/// The slowest member of a table, and the slowest dead member, for whom waiting is useless.
struct Horizon {
  std::int64_t slowest = 0;     ///< smallest clock of the members that have not left
  std::int64_t dead_clock = 0;  ///< clock of the slowest dead member
  const ClientSlot* dead = nullptr;
};

/// The answer to a member's newest pull of a part. It is kept until the member confirms it or asks
/// for more. A repeated request gets the same answer, whatever was added meanwhile.
struct Answered {
  int member = 0;
  std::int64_t number = 0;  ///< number of the pull
  int plane = 0;
  std::int64_t pushes = 0;
  std::int64_t updates = 0;
  Payload values;
};

/// A part of a dense table, and its members' progress, pulls and answers.
struct Part {
  struct Waiting {
    int member = 0;
    Pull pull;
  };
  PartState state;
  std::vector<std::int64_t> clocks;  ///< per member: its updates that were taken
  std::vector<Waiting> waiting;      ///< at most one per member
  std::vector<Answered> answered;    ///< at most one per member
};

/// The rows of a sparse table on this server, the members' progress, and the waiting pulls.
struct RowsState {
  struct Waiting {
    int member = 0;
    PullRows pull;
    Bytes asked;  ///< ids, and versions if the pull has a bound
  };
  RowTable state;
  std::vector<std::int64_t> taken;   ///< per member: pieces taken
  std::vector<std::int64_t> clocks;  ///< per member: complete updates
  std::vector<Waiting> waiting;      ///< only chunks of each member's newest pull
};

/// A table on one server. A dense table has parts; a sparse table has rows.
struct TableState {
  std::string name;
  std::int64_t elements = 0;
  Split split;
  UpdateRule rule;
  std::vector<ClientSlot*> members;     ///< nullptr: has not joined
  std::map<int, FirstPlanes> arriving;  ///< parts whose initial planes are incomplete
  std::map<int, Part> parts;            ///< parts that have values

  int width = 0;
  RowsInit first;
  std::unique_ptr<RowsState> rows;  ///< only of a sparse table
  MemoryBudget::Share share;        ///< memory besides parts and rows

  /// Returns true if the table needs no initial values on a server.
  bool has_values(int server) const {
    return rows != nullptr ||
           static_cast<int>(parts.size()) == split.first(server + 1) - split.first(server);
  }
  /// Returns the bytes of one plane of a dense table on a server.
  std::int64_t bytes_of_plane(int server) const {
    return (split.begin(split.first(server + 1)) - split.begin(split.first(server))) *
           static_cast<std::int64_t>(sizeof(float));
  }
  /// Returns the horizon for the clocks of a part, or of the rows.
  Horizon horizon(const std::vector<std::int64_t>& clocks) const;
  /// Returns why a member that waits for clock `least` waits in vain.
  std::string death(const ClientSlot& waits, const Horizon& horizon, std::int64_t least) const;
  /// Returns the names of the members that a pull waits for, or "" if there are none.
  std::string missing(const std::vector<std::int64_t>& clocks, std::int64_t least) const;
  /// Returns why a member with `kept` updates waiting for their rounds may not push more, or "" if
  /// it may.
  std::string too_far(const ClientSlot& member, std::size_t kept) const;
  /// Returns how a member's description of the table differs from the table, or "" if they agree.
  std::string disagreement(const Join& join) const;
  /// Returns the table's status on this server.
  TableStatus status() const;
};

/// Returns the bytes that creating the table takes.
std::int64_t table_bytes(const Join& join, int server, int servers);
/// Creates a table as its first member describes it.
std::shared_ptr<TableState> make_table(const Join& join, int server, int servers,
                                       const std::shared_ptr<MemoryBudget>& budget);

/// A join that waits until an older table of the same name ends.
struct EarlyJoin {
  ClientSlot* client = nullptr;
  Join join;
  MemoryBudget::Share share;  ///< memory reserved for the table
};

/// The whole state of a store except its connections.
struct StoreState {
  std::shared_ptr<MemoryBudget> budget;
  std::map<std::uint64_t, std::unique_ptr<ClientSlot>> clients;  ///< by session
  std::map<std::string, std::shared_ptr<TableState>> tables;
  std::vector<EarlyJoin> early;  ///< joins for the next training that uses a table's name
  /// Workers that worker_died() reported, with the reason. They get no new session here.
  std::map<int, std::string> died_before;
};

}  // namespace hetu::ps::server
