// The status that a parameter server reports on request (`hetu ps status`), as data and as bytes.
// Read by store_status.cpp and ps/client/status_report.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "net/wire/bytes.h"

namespace hetu::ps::server {

/// State of a member of a table or of a client.
enum class Presence : std::uint8_t { Connected, Left, Dead, NotCome };
inline constexpr int kPresences = static_cast<int>(Presence::NotCome) + 1;
/// Returns "connected", "left", "dead" or "not-come".
const char* presence_name(Presence presence);

/// The status of a member of a table.
struct MemberStatus {
  int worker = -1;  ///< -1: has not joined
  Presence presence = Presence::NotCome;
  std::int64_t clock = 0;  ///< updates that all parts here have
  bool operator==(const MemberStatus&) const = default;
};
/// A member's unanswered pull.
struct WaitStatus {
  int member = 0;
  std::int64_t least = 0;  ///< clock that every member must have reached
  int parts = 0;           ///< parts that have not been sent
  bool operator==(const WaitStatus&) const = default;
};
/// The status of a table's parts on one server.
struct TableStatus {
  std::string name;
  std::string rule;           ///< describe(UpdateRule)
  std::int64_t elements = 0;  ///< on all servers
  int width = 0;              ///< row width of a sparse table; 0: dense
  std::int64_t bytes = 0;     ///< on this server: values and optimizer states
  std::int64_t pushes = 0;   ///< pushes of all members applied to the part here that has the fewest
  std::int64_t updates = 0;  ///< likewise for updates, including those before the table was opened
  std::vector<MemberStatus> members;
  std::vector<WaitStatus> waiting;
  bool operator==(const TableStatus&) const = default;
};
/// The status of a client.
struct ClientStatus {
  int worker = 0;
  Presence presence = Presence::Connected;
  std::int64_t silent_us = 0;  ///< since the last message
  std::int64_t pushes = 0;     ///< pushes added to parts here
  std::string death;           ///< "is silent for 8 s"
  bool operator==(const ClientStatus&) const = default;
};

/// One answer. It holds as many tables, in the order of their names, as fit on a page.
struct ServerStatus {
  int server = 0;
  int servers = 1;
  std::int64_t received_bytes = 0;  ///< bytes of headers and values
  std::int64_t sent_bytes = 0;
  std::int64_t dropped = 0;                      ///< messages that no worker of this job sends
  std::array<std::int64_t, kPresences> count{};  ///< clients by presence
  std::vector<ClientStatus> clients;             ///< at most kMostClients, connected ones first
  std::int64_t tables_in_all = 0;
  std::vector<TableStatus> tables;
  bool operator==(const ServerStatus&) const = default;
};

inline constexpr std::size_t kMostClients = 1024;   ///< most clients that are listed one by one
inline constexpr std::size_t kPageBytes = 1 << 16;  ///< a page ends after the table that exceeds it

/// Returns the members whose clocks are behind the pull, without those that have left.
std::vector<int> waited_for(const TableStatus& table, const WaitStatus& wait);

/// Encodes a status as bytes.
Bytes encode_status(const ServerStatus& status);
/// Decodes a status. Throws Comm, with the reason, before it allocates memory for a bad length.
ServerStatus decode_status(const std::byte* data, std::size_t bytes);

}  // namespace hetu::ps::server
