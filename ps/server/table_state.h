// What a store knows of its workers and tables. Read by the store's own sources alone. What is
// added here is to be saved, too: store_saved.cpp does not compile before it says how.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ps/server/part_state.h"
#include "ps/server/room.h"
#include "ps/server/row_table.h"
#include "ps/server/seat.h"
#include "ps/server/split.h"
#include "ps/server/status.h"

namespace hetu::ps::server {

/// Who is slowest of a table, and for whom nobody should wait.
struct Horizon {
  std::int64_t slowest = 0;     ///< clock
  std::int64_t dead_clock = 0;  ///< of the slowest who died
  const Seat* dead = nullptr;
};

/// The answer to a member's newest pull of a part, until it is known to have it or asks for more:
/// asked again, it hears the same, whatever was added meanwhile.
struct Answered {
  int member = 0;
  std::int64_t number = 0;  ///< of the pull
  int plane = 0;
  std::int64_t pushes = 0;
  std::int64_t updates = 0;
  Payload values;
};

struct Part {
  struct Waiting {
    int member = 0;
    Pull pull;
  };
  PartState state;
  std::vector<std::int64_t> clocks;  ///< per member: its updates that were taken
  std::vector<Waiting> waiting;      ///< at most one per member
  std::vector<Answered> answered;    ///< likewise
};

/// A sparse table's rows here, and who has pushed and waits.
struct RowsState {
  struct Waiting {
    int member = 0;
    PullRows pull;
    Bytes asked;  ///< ids, versions
  };
  RowTable state;
  std::vector<std::int64_t> taken;   ///< per member: pieces
  std::vector<std::int64_t> clocks;  ///< per member: whole updates
  std::vector<Waiting> waiting;      ///< of each member's newest pull alone
};

struct TableState {
  std::string name;
  std::int64_t elements = 0;
  Split split;
  UpdateRule rule;
  std::vector<Seat*> members;           ///< nullptr: has not joined
  std::map<int, FirstPlanes> arriving;  ///< parts whose values are on their way
  std::map<int, Part> parts;            ///< those that have values

  int width = 0;
  RowsInit first;
  std::unique_ptr<RowsState> rows;  ///< of a sparse table
  Room::Share share;                ///< beside parts and rows

  bool has_values(int server) const {
    return rows != nullptr ||
           static_cast<int>(parts.size()) == split.first(server + 1) - split.first(server);
  }
  /// Bytes of the values of a dense table on a server.
  std::int64_t bytes_of_plane(int server) const {
    return (split.begin(split.first(server + 1)) - split.begin(split.first(server))) *
           static_cast<std::int64_t>(sizeof(float));
  }
  /// By the clocks of a part, or of the rows.
  Horizon horizon(const std::vector<std::int64_t>& clocks) const;
  /// Why a member that waits for clock `least` waits in vain.
  std::string death(const Seat& waits, const Horizon& horizon, std::int64_t least) const;
  /// Whom a pull waits for, named; "" if nobody.
  std::string missing(const std::vector<std::int64_t>& clocks, std::int64_t least) const;
  /// Why a member that has so many updates waiting for their rounds is not to push more; "" if it
  /// may.
  std::string too_far(const Seat& member, std::size_t kept) const;
  /// What a member says of it and what it is; "" if that is the same.
  std::string disagreement(const Join& join) const;
  TableStatus status() const;
};

/// Bytes that making it takes.
std::int64_t table_bytes(const Join& join, int server, int servers);
std::shared_ptr<TableState> make_table(const Join& join, int server, int servers,
                                       const std::shared_ptr<Room>& room);

/// A join that waits for the end of a table of the same name.
struct EarlyJoin {
  Seat* seat = nullptr;
  Join join;
  Room::Share share;  ///< of the table
};

/// All that a store is made of, but for its connections.
struct StoreState {
  std::shared_ptr<Room> room;
  std::map<std::uint64_t, std::unique_ptr<Seat>> seats;  ///< by session
  std::map<std::string, std::shared_ptr<TableState>> tables;
  std::vector<EarlyJoin> early;            ///< for the next training of a name
  std::map<int, std::string> died_before;  ///< workers that never came, and how they died
};

}  // namespace hetu::ps::server
