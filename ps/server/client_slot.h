// A client of a store, and its memberships in tables. Read by the store's own sources only. New
// fields must be saved, too: store_saved.h doesn't compile until they are listed there.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ps/server/messages.h"
#include "ps/server/status.h"

namespace hetu::ps::server {

/// The transport's id of a connection.
using Peer = std::uint64_t;

struct TableState;

/// A worker's membership in a table.
struct TableMembership {
  std::shared_ptr<TableState> table;
  int member = 0;
};

/// The state of one client.
struct ClientSlot {
  std::uint64_t session = 0;
  int worker = 0;
  Peer peer = 0;              ///< 0: has not reconnected since the store was rebuilt from its log
  std::uint32_t attempt = 0;  ///< newest attempt of the client's line
  Received received;          ///< messages received since then
  std::int64_t sent = 0;      ///< messages with a serial number sent since then
  std::int64_t heard_us = 0;
  std::int64_t pushes = 0;  ///< pushes added to parts here, over all tables
  bool left = false;
  std::string death;  ///< "is silent for 8 s"; "" while the client is alive
  std::map<int, TableMembership> memberships;  ///< by the client's own table numbers

  /// Returns true if the client has left or died.
  bool gone() const { return left || !death.empty(); }
  Presence presence() const {
    if (left) return Presence::Left;
    return death.empty() ? Presence::Connected : Presence::Dead;
  }
};

}  // namespace hetu::ps::server
