// What workers and parameter servers say to each other: a header frame, read here, and a payload
// frame of float32 values, empty for most messages. Every length and count is checked before
// anything is allocated. Read by store.h and by ps/client.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "net/wire/bytes.h"
#include "ps/server/rows.h"
#include "ps/server/split.h"
#include "ps/server/update_rule.h"

namespace hetu::ps::server {

inline constexpr std::size_t kLongestHeader = 1 << 16;  ///< bytes of a header frame
/// Bytes of any frame: a part, and what encryption adds to it.
inline constexpr std::int64_t kLongestFrame = kPartElements * 4 + (1 << 12);
inline constexpr int kMostMembers = 4096;         ///< of a table
inline constexpr int kMostChunks = 1 << 20;       ///< of a pull of rows
inline constexpr int kMostTables = 1 << 12;       ///< that a worker may open
inline constexpr std::size_t kLongestName = 256;  ///< of a table, in bytes

/// Bytes that somebody keeps for as long as `owner` lives; nobody changes them meanwhile.
struct Payload {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner = nullptr;
};

// From a worker. `table` is the worker's own number of it, `part` that of Split.

/// The first message of a line, and of one that begins anew.
struct Hello {
  std::uint64_t session = 0;  ///< drawn by the client, the same on all its lines
  int worker = 0;
  int server = 0;  ///< whom it wants to speak to
  int servers = 1;
  bool known = false;  ///< has been welcomed before
  bool operator==(const Hello&) const = default;
};
/// Wants to take part in a table.
struct Join {
  int table = 0;
  std::string name;
  std::int64_t elements = 0;
  int members = 1;
  int member = 0;
  UpdateRule rule = {};
  int width = 0;  ///< of a sparse table's rows, whose number is elements / width; 0: dense
  RowsInit first = {};
  bool operator==(const Join&) const = default;
};
/// First values of a part (plane 0) or of what an optimizer keeps beside them, for whoever has
/// none; with payload. Planes that are not sent are zeros.
struct Init {
  int table = 0;
  int part = 0;
  int plane = 0;
  int planes = 1;            ///< that are sent
  std::int64_t updates = 0;  ///< applied before
  bool operator==(const Init&) const = default;
};
/// The member's update `number`, from 1, of a part; with payload.
struct Push {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  double rate = 0;  ///< learning rate; 0 where updates are added
  bool operator==(const Push&) const = default;
};
/// Wants a part's values once every clock is at least `least` and its own at least `after`.
struct Pull {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;  ///< of this member's pulls, from 1
  std::int64_t least = 0;
  std::int64_t after = 0;
  int plane = 0;  ///< 0: values
  bool operator==(const Pull&) const = default;
};
// Of sparse tables. A server has one part of each, whose number is the server's; rows have local
// numbers (RowSplit).

/// A piece of the member's update, with payload: ids (int64, ascending), counts of updates (uint32)
/// if `counted`, vectors. A line's pieces and SetRows of a table are numbered together, from 1.
struct PushRows {
  int table = 0;
  std::int64_t number = 0;
  double rate = 0;
  bool counted = false;
  bool last = true;  ///< of its update: the member's clock rises
  bool operator==(const PushRows&) const = default;
};
/// Replaces a tensor of some rows, with payload: ids, vectors.
struct SetRows {
  int table = 0;
  std::int64_t number = 0;
  int plane = 0;
  std::int64_t updates = 0;  ///< that the table has seen
  bool operator==(const SetRows&) const = default;
};
/// Wants rows once every clock is at least `least` and `after` pieces of its own have come; with
/// payload: ids (int64) and, if `bound` is at least 0, versions of them (int64): then only those
/// that have seen more than `bound` updates since come back.
struct PullRows {
  int table = 0;
  std::int64_t number = 0;  ///< of this member's pulls, from 1
  int chunk = 0;            ///< of the pull
  std::int64_t least = 0;
  std::int64_t after = 0;
  int plane = 0;
  std::int64_t bound = -1;
  bool operator==(const PullRows&) const = default;
};
/// Asks for whom a pull of a part waits.
struct Who {
  int table = 0;
  int part = 0;
  std::int64_t least = 0;
  bool operator==(const Who&) const = default;
};
/// A sign of life, after `sent` messages since the line began.
struct Beat {
  std::int64_t sent = 0;
  bool operator==(const Beat&) const = default;
};
/// The worker ends in order, after so many parts pushed to this server.
struct Leave {
  std::int64_t pushes = 0;
  bool operator==(const Leave&) const = default;
};
/// Has the answer to its pull `number` of a part; sent once, and only where values are many.
struct Got {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  bool operator==(const Got&) const = default;
};

/// Asks how the server is (status.h), its tables from number `first` on in the order of their
/// names. From anybody with the job's key: no hello, no place in a line.
struct Status {
  std::int64_t first = 0;
  bool operator==(const Status&) const = default;
};

// From a server.

struct Welcome {
  bool operator==(const Welcome&) const = default;
};
struct Joined {
  int table = 0;
  bool wants_values = false;  ///< the member is to send Init of each part
  bool operator==(const Joined&) const = default;
};
/// The member cannot take part in the table.
struct NotJoined {
  int table = 0;
  std::string text;
  bool operator==(const NotJoined&) const = default;
};
struct Initialised {
  int table = 0;
  int part = 0;
  int plane = 0;
  bool operator==(const Initialised&) const = default;
};
/// The newest update of this member that the part has; it has all before that, too.
struct Pushed {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  bool operator==(const Pushed&) const = default;
};
/// The answer to a pull; with payload.
struct Values {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  std::int64_t pushes = 0;   ///< that the part has applied, of all members
  std::int64_t updates = 0;  ///< those before the table was made included
  bool operator==(const Values&) const = default;
};
/// The newest piece of this member that the server has of a sparse table.
struct PushedRows {
  int table = 0;
  std::int64_t number = 0;
  bool operator==(const PushedRows&) const = default;
};
/// The answer to PullRows, with payload: vectors, or, where versions were given, for each row that
/// is newer its place among the ids (uint32), its version (int64) and its vector.
struct RowValues {
  int table = 0;
  std::int64_t number = 0;
  int chunk = 0;
  std::int64_t pushes = 0;
  std::int64_t updates = 0;
  bool operator==(const RowValues&) const = default;
};
/// The pull waits for the dead.
struct NoValues {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  std::string text;
  bool operator==(const NoValues&) const = default;
};
struct Waits {
  int table = 0;
  int part = 0;
  std::string text;  ///< "worker 3 (2 updates of 5)"
  bool operator==(const Waits&) const = default;
};
/// The answer to a Beat: what was sent on this line since it began, and whether all had come, in
/// order. Before Welcome it says that the server lives and will answer later.
struct BeatBack {
  bool all_came = true;
  std::int64_t sent = 0;
  bool operator==(const BeatBack&) const = default;
};
struct Left {
  bool operator==(const Left&) const = default;
};
/// The answer to Status; its payload is a ServerStatus (status.h).
struct StatusIs {
  std::int64_t first = 0;
  bool operator==(const StatusIs&) const = default;
};
/// The client can do nothing more here.
struct Refusal {
  Code code = Code::Comm;
  std::string text;
  bool operator==(const Refusal&) const = default;
};

using FromClient = std::variant<Hello, Join, Init, Push, Pull, Who, Beat, Leave, PushRows, SetRows,
                                PullRows, Got, Status>;
using FromServer = std::variant<Welcome, Joined, NotJoined, Initialised, Pushed, Values, NoValues,
                                Waits, BeatBack, Left, Refusal, PushedRows, RowValues, StatusIs>;

/// A header: a message, which beginning of the line it belongs to, from 1, and its place among the
/// messages since then, from 1; 0: it has none (signs of life, and what begins a line).
template <class Message>
struct Framed {
  std::uint32_t attempt = 1;
  std::int64_t serial = 0;
  Message message;
};

/// A header as bytes. Texts are cut to kLongestText bytes.
Bytes encode(std::uint32_t attempt, const FromClient& message, std::int64_t serial = 0);
Bytes encode(std::uint32_t attempt, const FromServer& message, std::int64_t serial = 0);

/// The header in a frame. Throws Comm, naming what is wrong with it: unknown kind, another version,
/// too short, too long, a count or a value out of its range.
Framed<FromClient> decode_from_client(const std::byte* data, std::size_t bytes);
Framed<FromServer> decode_from_server(const std::byte* data, std::size_t bytes);

/// What one end of a line has received since it began: whether anything is missing or out of order.
struct Received {
  std::int64_t newest = 0;
  bool missed = false;

  void take(std::int64_t serial) {
    missed = missed || serial - 1 > newest;  // newest + 1 may be none
    newest = std::max(newest, serial);
  }
  /// After so many messages of the other end.
  bool all(std::int64_t sent) const { return !missed && newest == sent; }
};

}  // namespace hetu::ps::server
