// What a store is told when it is made, and what it tells of its changes.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "ps/server/messages.h"

namespace hetu::ps::server {

/// An update that was applied to a part; each once, in the order of applications to that part, and
/// the pushes of a round in the order in which they are added up.
struct Applied {
  const std::string& table;
  int part = 0;
  int member = 0;
  std::int64_t number = 0;  ///< the member's, from 1
};

/// What has changed a store: a message that it has taken, or a death. All that its log keeps; a
/// store is a function of its changes.
struct Change {
  enum class Of : std::uint8_t { Message, Session, Worker };
  Of of = Of::Message;
  std::uint64_t who = 0;  ///< a session, or the number of a worker
  Payload words;          ///< the header of the message, or how who died
  Payload values;         ///< of the message
};

/// A piece of a store's whole state: what it is of, and values of a part.
struct Piece {
  Bytes words;
  Payload values;
};

inline constexpr std::int64_t kSecond_us = 1'000'000;
inline constexpr std::int64_t kMostUnread = std::int64_t{256} << 20;

struct StoreOptions {
  int server = 0;  ///< of servers
  int servers = 1;
  double dead_after_s = kDeadAfterS;  ///< silence of a worker that means death; 0 = never
  std::int64_t memory = 0;  ///< bytes of tables and of updates that wait for rounds; 0: no limit
  /// Bytes of answers that a worker has not read, beside one of each dense table that it has: more
  /// mean its death. Rows of sparse tables wait for their reader from a quarter of it on.
  std::int64_t most_unread = kMostUnread;
  std::function<void(const Applied&)> on_applied = nullptr;
  /// Hears of each change before take() gives an answer to it. Its memory is the caller's.
  std::function<void(const Change&)> on_change = nullptr;
};

}  // namespace hetu::ps::server
