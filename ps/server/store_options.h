// Options of a store, and the changes that it reports.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "ps/server/messages.h"

namespace hetu::ps::server {

/// An update that was applied to a part. Reported once, in the order of application to that part.
/// Pushes of a round come in the order in which they are summed.
struct Applied {
  const std::string& table;
  int part = 0;
  int member = 0;
  std::int64_t number = 0;  ///< the member's update number, from 1
};

/// A change of a store: a message that it has taken, or a death. The log consists of changes, and a
/// store's state is a function of its changes.
struct Change {
  enum class Of : std::uint8_t { Message, Session, Worker };
  Of of = Of::Message;
  std::uint64_t who = 0;  ///< a session, or a worker's number
  Payload words;          ///< the header of the message, or the reason of the death
  Payload values;         ///< payload of the message
};

/// A piece of a store's whole state: a description, and values.
struct Piece {
  Bytes words;
  Payload values;
};

inline constexpr std::int64_t kSecond_us = 1'000'000;
inline constexpr std::int64_t kMostUnread = std::int64_t{256} << 20;

/// Options of a store.
struct StoreOptions {
  int server = 0;  ///< number of this server, from 0
  int servers = 1;
  double dead_after_s = kDeadAfterS;  ///< seconds of silence after which a worker is dead; 0: never
  std::int64_t memory = 0;  ///< limit in bytes for tables and waiting updates; 0: no limit
  /// Most bytes of unread answers per worker, in addition to one copy of each of its dense tables.
  /// A worker that exceeds it is declared dead. Rows of sparse tables are held back from a quarter
  /// of it on.
  std::int64_t most_unread = kMostUnread;
  std::function<void(const Applied&)> on_applied = nullptr;
  /// Called with each change before take() returns an answer to it. The callee must copy the bytes.
  std::function<void(const Change&)> on_change = nullptr;
};

}  // namespace hetu::ps::server
