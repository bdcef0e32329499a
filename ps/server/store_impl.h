// What a store knows of its workers and tables. Read by the store's own sources alone. What is
// added here is to be saved, too: store_saved.cpp does not compile before it says how.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ps/server/row_table.h"
#include "ps/server/store.h"

namespace hetu::ps::server {

inline constexpr std::size_t kMostKept = 32;  ///< updates of a member that wait for their rounds

/// A worker's part in a table.
struct Store::Place {
  std::shared_ptr<TableState> table;
  int member = 0;
};

/// Who is slowest of a table, and for whom nobody should wait.
struct Store::Horizon {
  std::int64_t slowest = 0;     ///< clock
  std::int64_t dead_clock = 0;  ///< of the slowest who died
  const Seat* dead = nullptr;
};

/// One client.
struct Store::Seat {
  std::uint64_t session = 0;
  int worker = 0;
  Peer peer = 0;              ///< 0: has not come again since this store was made from its log
  std::uint32_t attempt = 0;  ///< the newest beginning of its line
  Received received;          ///< since then
  std::int64_t sent = 0;      ///< messages with a place, since then
  std::int64_t heard_us = 0;
  std::int64_t pushes = 0;  ///< added to parts here, over all tables
  bool left = false;
  std::string death;            ///< "is silent for 8 s"; "" while it lives
  std::map<int, Place> places;  ///< by its own numbers of tables

  bool gone() const { return left || !death.empty(); }
};

/// The answer to a member's newest pull of a part, until it is known to have it or asks for more:
/// asked again, it hears the same, whatever was added meanwhile.
struct Store::Answered {
  int member = 0;
  std::int64_t number = 0;  ///< of the pull
  int plane = 0;
  std::int64_t pushes = 0;
  std::int64_t updates = 0;
  Payload values;
};

struct Store::Part {
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
struct Store::RowsState {
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

struct Store::TableState {
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

  bool has_values(int server) const {
    return rows != nullptr ||
           static_cast<int>(parts.size()) == split.first(server + 1) - split.first(server);
  }
};

}  // namespace hetu::ps::server
