// Messages between workers and parameter servers. A message has a header frame, decoded here, and a
// payload frame of float32 values, which is empty for most messages. Decoding checks every length
// and count before it allocates anything. Read by store.h and by ps/client.
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

inline constexpr std::size_t kLongestHeader = 1 << 16;  ///< most bytes of a header frame
/// Most bytes of any frame: a part, and the overhead of encryption.
inline constexpr std::int64_t kLongestFrame = kPartElements * 4 + (1 << 12);
inline constexpr int kMostMembers = 4096;         ///< most members of a table
inline constexpr int kMostChunks = 1 << 20;       ///< most chunks of a pull of rows
inline constexpr int kMostTables = 1 << 12;       ///< most tables that a worker may open
inline constexpr std::size_t kLongestName = 256;  ///< most bytes of a table's name

/// Bytes that stay valid and unchanged while `owner` exists.
struct Payload {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::shared_ptr<const void> owner = nullptr;
};

// Messages from a worker. `table` is the worker's own number of the table; `part` is the number in
// Split.

/// The first message of a line, and of each new attempt of the line.
struct Hello {
  std::uint64_t session = 0;  ///< random number of the client, the same on all its lines
  int worker = 0;
  int server = 0;  ///< number of the server that the client expects
  int servers = 1;
  bool known = false;  ///< true if the server has welcomed this session before
  bool operator==(const Hello&) const = default;
};
/// Asks to become a member of a table.
struct Join {
  int table = 0;
  std::string name;
  std::int64_t elements = 0;
  int members = 1;
  int member = 0;
  UpdateRule rule = {};
  int width = 0;  ///< row width of a sparse table with elements / width rows; 0: dense
  RowsInit first = {};
  bool operator==(const Join&) const = default;
};
/// Initial values of a part (plane 0) or of an optimizer state (other planes), for a part that has
/// no values yet. The payload holds the values. Planes that are not sent become zeros.
struct Init {
  int table = 0;
  int part = 0;
  int plane = 0;
  int planes = 1;            ///< number of planes that are sent
  std::int64_t updates = 0;  ///< updates applied before the table was opened
  bool operator==(const Init&) const = default;
};
/// Update `number` of a part by this member, counted from 1. The payload holds the values.
struct Push {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  double rate = 0;  ///< learning rate; 0 if updates are only added
  bool operator==(const Push&) const = default;
};
/// Asks for a part's values once every member's clock is at least `least` and the sender's own
/// clock is at least `after`.
struct Pull {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;  ///< number among this member's pulls, from 1
  std::int64_t least = 0;
  std::int64_t after = 0;
  int plane = 0;  ///< 0: values; otherwise an optimizer state
  bool operator==(const Pull&) const = default;
};
// Messages about sparse tables. A server has one part of each sparse table, whose number is the
// server's. Rows have local numbers (RowSplit).

/// A piece of the member's update. The payload holds the ids (int64, ascending), the numbers of
/// updates per row (uint32) if `counted` is set, and the vectors. PushRows and SetRows of a table
/// share one numbering per line, from 1.
struct PushRows {
  int table = 0;
  std::int64_t number = 0;
  double rate = 0;
  bool counted = false;
  bool last = true;  ///< last piece of its update: the member's clock increases
  bool operator==(const PushRows&) const = default;
};
/// Replaces one plane of some rows. The payload holds ids and vectors.
struct SetRows {
  int table = 0;
  std::int64_t number = 0;
  int plane = 0;
  std::int64_t updates = 0;  ///< updates that the table has received
  bool operator==(const SetRows&) const = default;
};
/// Asks for rows once every member's clock is at least `least` and `after` pieces of the sender's
/// own have arrived. The payload holds ids (int64) and, if `bound` >= 0, the versions that the
/// sender has (int64). With versions, the answer holds only rows with more than `bound` updates
/// since then.
struct PullRows {
  int table = 0;
  std::int64_t number = 0;  ///< number among this member's pulls, from 1
  int chunk = 0;            ///< chunk of the pull
  std::int64_t least = 0;
  std::int64_t after = 0;
  int plane = 0;
  std::int64_t bound = -1;
  bool operator==(const PullRows&) const = default;
};
/// Asks which workers a pull of a part waits for.
struct Who {
  int table = 0;
  int part = 0;
  std::int64_t least = 0;
  bool operator==(const Who&) const = default;
};
/// A heartbeat, after `sent` messages since the line began.
struct Beat {
  std::int64_t sent = 0;
  bool operator==(const Beat&) const = default;
};
/// Announces that the worker ends in order, after `pushes` pushes to this server.
struct Leave {
  std::int64_t pushes = 0;
  bool operator==(const Leave&) const = default;
};
/// Confirms that the member has the answer to pull `number` of a part. Sent once, and only for
/// large values.
struct Got {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  bool operator==(const Got&) const = default;
};

/// Asks for the server's status (status.h), with the tables from number `first` on in order of
/// their names. Anyone who has the job's key may ask: no Hello is needed, and no serial number.
struct Status {
  std::int64_t first = 0;
  bool operator==(const Status&) const = default;
};

// Messages from a server.

/// Accepts a Hello.
struct Welcome {
  bool operator==(const Welcome&) const = default;
};
/// Accepts a Join.
struct Joined {
  int table = 0;
  bool wants_values = false;  ///< true if the member must send Init for each part
  bool operator==(const Joined&) const = default;
};
/// Reports why the member can't join the table.
struct NotJoined {
  int table = 0;
  std::string text;
  bool operator==(const NotJoined&) const = default;
};
/// Acknowledges an Init, also if the part had values already.
struct Initialised {
  int table = 0;
  int part = 0;
  int plane = 0;
  bool operator==(const Initialised&) const = default;
};
/// Acknowledges this member's newest update of the part, and all updates before it.
struct Pushed {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  bool operator==(const Pushed&) const = default;
};
/// The answer to Pull. The payload holds the values.
struct Values {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  std::int64_t pushes = 0;   ///< pushes that the part has applied, of all members
  std::int64_t updates = 0;  ///< updates, including those before the table was opened
  bool operator==(const Values&) const = default;
};
/// Acknowledges the newest piece that the server has from this member for a sparse table.
struct PushedRows {
  int table = 0;
  std::int64_t number = 0;
  bool operator==(const PushedRows&) const = default;
};
/// The answer to PullRows. Without versions, the payload holds the vectors. With versions, it holds
/// for each newer row the row's index among the ids (uint32), its version (int64) and its vector.
struct RowValues {
  int table = 0;
  std::int64_t number = 0;
  int chunk = 0;
  std::int64_t pushes = 0;
  std::int64_t updates = 0;
  bool operator==(const RowValues&) const = default;
};
/// Reports that the pull waits for a dead worker.
struct NoValues {
  int table = 0;
  int part = 0;
  std::int64_t number = 0;
  std::string text;
  bool operator==(const NoValues&) const = default;
};
/// The answer to Who: the members that the pull waits for, or "" if there are none.
struct Waits {
  int table = 0;
  int part = 0;
  std::string text;  ///< "worker 3 (2 updates of 5)"
  bool operator==(const Waits&) const = default;
};
/// The answer to Beat: the number of messages sent on this line since it began, and whether all of
/// the client's messages arrived in order. Sent before Welcome, it means that the server exists and
/// will answer later.
struct BeatBack {
  bool all_came = true;
  std::int64_t sent = 0;
  bool operator==(const BeatBack&) const = default;
};
/// Confirms Leave.
struct Left {
  bool operator==(const Left&) const = default;
};
/// The answer to Status. The payload is a ServerStatus (status.h).
struct StatusIs {
  std::int64_t first = 0;
  bool operator==(const StatusIs&) const = default;
};
/// Ends the client's work with this server.
struct Refusal {
  Code code = Code::Comm;
  std::string text;
  bool operator==(const Refusal&) const = default;
};

using FromClient = std::variant<Hello, Join, Init, Push, Pull, Who, Beat, Leave, PushRows, SetRows,
                                PullRows, Got, Status>;
using FromServer = std::variant<Welcome, Joined, NotJoined, Initialised, Pushed, Values, NoValues,
                                Waits, BeatBack, Left, Refusal, PushedRows, RowValues, StatusIs>;

/// A decoded header. `attempt` counts the attempts of the line, from 1. `serial` is the message's
/// position among the messages since the attempt began, from 1. It is 0 for messages without a
/// position: heartbeats, and the messages that begin a line.
template <class Message>
struct Framed {
  std::uint32_t attempt = 1;
  std::int64_t serial = 0;
  Message message;
};

/// Encodes a header as bytes. Texts are cut to kLongestText bytes.
Bytes encode(std::uint32_t attempt, const FromClient& message, std::int64_t serial = 0);
Bytes encode(std::uint32_t attempt, const FromServer& message, std::int64_t serial = 0);

/// Decodes a header frame. Throws Comm, with the reason: unknown kind, another version, too short,
/// too long, or a count or value out of range.
Framed<FromClient> decode_from_client(const std::byte* data, std::size_t bytes);
Framed<FromServer> decode_from_server(const std::byte* data, std::size_t bytes);

/// Tracks what one end of a line has received since the line began, and detects missing or
/// reordered messages.
struct Received {
  std::int64_t newest = 0;
  bool missed = false;

  void take(std::int64_t serial) {
    missed = missed || serial - 1 > newest;  // newest + 1 may overflow
    newest = std::max(newest, serial);
  }
  /// Returns true if exactly the `sent` messages of the other end have arrived, in order.
  bool all(std::int64_t sent) const { return !missed && newest == sent; }
};

}  // namespace hetu::ps::server
