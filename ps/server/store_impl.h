// What a store knows of its workers and tables. Read by store.cpp and store_life.cpp alone.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ps/server/store.h"

namespace hetu::ps::server {

/// A worker's part in a table.
struct Store::Place {
  std::shared_ptr<TableState> table;
  int member = 0;
};

/// One client.
struct Store::Seat {
  int worker = 0;
  Peer peer = 0;
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

struct Store::Part {
  struct Waiting {
    int member = 0;
    Pull pull;
  };
  PartState state;
  std::vector<std::int64_t> clocks;  ///< per member: its updates that were taken
  std::vector<Waiting> waiting;      ///< at most one per member
};

struct Store::TableState {
  std::string name;
  std::int64_t elements = 0;
  Split split;
  UpdateRule rule;
  std::vector<Seat*> members;           ///< nullptr: has not joined
  std::map<int, FirstPlanes> arriving;  ///< parts whose values are on their way
  std::map<int, Part> parts;            ///< those that have values

  bool has_values(int server) const {
    return static_cast<int>(parts.size()) == split.first(server + 1) - split.first(server);
  }
};

}  // namespace hetu::ps::server
