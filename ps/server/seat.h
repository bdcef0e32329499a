// A client of a store, and its part in tables. Read by the store's own sources alone. What is added
// here is to be saved, too: store_saved.cpp does not compile before it says how.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ps/server/messages.h"
#include "ps/server/status.h"

namespace hetu::ps::server {

/// The transport's name of a connection.
using Peer = std::uint64_t;

struct TableState;

/// A worker's part in a table.
struct Place {
  std::shared_ptr<TableState> table;
  int member = 0;
};

/// One client.
struct Seat {
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
  Presence presence() const {
    if (left) return Presence::Left;
    return death.empty() ? Presence::Connected : Presence::Dead;
  }
};

}  // namespace hetu::ps::server
