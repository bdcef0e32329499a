// What a parameter server says of itself to whoever asks (`hetu ps status`): as data and as bytes.
// Read by store_status.cpp and ps/client/status_report.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "net/wire/bytes.h"

namespace hetu::ps::server {

/// Of a member of a table, or of a client.
enum class Presence : std::uint8_t { Connected, Left, Dead, NotCome };
inline constexpr int kPresences = static_cast<int>(Presence::NotCome) + 1;
/// "connected", "left", "dead", "not-come".
const char* presence_name(Presence presence);

struct MemberStatus {
  int worker = -1;  ///< -1: has not come
  Presence presence = Presence::NotCome;
  std::int64_t clock = 0;  ///< updates that all parts here have
  bool operator==(const MemberStatus&) const = default;
};
/// A member's pull that is not answered yet.
struct WaitStatus {
  int member = 0;
  std::int64_t least = 0;  ///< clock that everyone must have reached
  int parts = 0;           ///< that have not been sent
  bool operator==(const WaitStatus&) const = default;
};
struct TableStatus {
  std::string name;
  std::string rule;           ///< describe(UpdateRule)
  std::int64_t elements = 0;  ///< on all servers
  int width = 0;              ///< of a sparse table's rows; 0: dense
  std::int64_t bytes = 0;     ///< here: values, and what the optimizer keeps
  std::int64_t pushes = 0;    ///< applied, of all members, to the part here that has fewest
  std::int64_t updates = 0;   ///< the same, those before the table was made included
  std::vector<MemberStatus> members;
  std::vector<WaitStatus> waiting;
  bool operator==(const TableStatus&) const = default;
};
struct ClientStatus {
  int worker = 0;
  Presence presence = Presence::Connected;
  std::int64_t silent_us = 0;  ///< since it was last heard
  std::int64_t pushes = 0;     ///< added to parts here
  std::string death;           ///< "is silent for 8 s"
  bool operator==(const ClientStatus&) const = default;
};

/// One answer: as many tables, in the order of their names, as fit a page.
struct ServerStatus {
  int server = 0;
  int servers = 1;
  std::int64_t received_bytes = 0;  ///< of headers and values
  std::int64_t sent_bytes = 0;
  std::int64_t dropped = 0;                      ///< messages that no worker of this job sends
  std::array<std::int64_t, kPresences> count{};  ///< clients by presence
  std::vector<ClientStatus> clients;             ///< those connected first; at most kMostClients
  std::int64_t tables_in_all = 0;
  std::vector<TableStatus> tables;
  bool operator==(const ServerStatus&) const = default;
};

inline constexpr std::size_t kMostClients = 1024;   ///< that are told one by one
inline constexpr std::size_t kPageBytes = 1 << 16;  ///< a page ends with the table that exceeds it

/// The members that a pull waits for, by their clocks.
std::vector<int> waited_for(const TableStatus& table, const WaitStatus& wait);

Bytes encode_status(const ServerStatus& status);
/// Throws Comm, naming what is wrong, before anything is allocated for it.
ServerStatus decode_status(const std::byte* data, std::size_t bytes);

}  // namespace hetu::ps::server
