// A parameter server's rules, without its socket and clock: tables, clocks, waiting pulls, and
// which clients are alive. Messages go in and messages come out. Driven by serve_parameters
// (ZeroMQ), by ps/client's local_servers.h, and by tests.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/server/answers.h"
#include "ps/server/messages.h"
#include "ps/server/status.h"
#include "ps/server/store_options.h"

namespace hetu::ps::server {

/// Returns the answer to a message that arrives while a store is being rebuilt from its log. A
/// Hello gets a BeatBack, which shows that the server is alive. Other messages get no answer.
std::optional<Bytes> while_it_recovers(const std::byte* header, std::size_t bytes);

class DenseTables;
class SparseTables;
class MemoryBudget;
struct StoreState;

/// The parts of all tables that one server holds. Times are microseconds of one monotonic clock.
///
/// A part applies each member's updates in the order of their numbers, even if messages are lost,
/// repeated or reordered. It acknowledges a repeated update again and ignores an update that comes
/// too early. The table's UpdateRule defines how an update is applied.
///
/// A pull is answered as soon as every member's clock has reached the requested value. A member
/// that left in order counts as infinitely far ahead. A dead member fails every pull that waits for
/// it. When all members of a table have left or died, the store forgets the table. Members of the
/// next training with the same table name wait until then.
class Store {
 public:
  using Peer = server::Peer;
  using Outgoing = server::Outgoing;

  /// Creates an empty store.
  explicit Store(StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Processes a message. Drops and counts a message that no worker of this job would send.
  void receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us);
  /// Checks for silent workers. Call it at wakes_at_us().
  void tick(std::int64_t now_us);
  /// Returns the time of the next tick(), or nullopt if none is needed.
  std::optional<std::int64_t> wakes_at_us() const;

  /// Marks a worker as dead by its number, because heturun saw it end. The effect is that of
  /// silence.
  void worker_died(int worker, const std::string& reason);
  /// As above, for the worker on a connection.
  void peer_died(Peer peer, const std::string& reason);

  /// Returns true if rows are held back until their receiver has read earlier answers. Call go_on()
  /// regularly while it is true.
  bool holds_back() const { return answers_.holds_back(); }
  void go_on();

  /// Returns the messages to send since the last call, in order.
  std::vector<Outgoing> take() { return answers_.take(); }

  /// Applies a logged change of an earlier store without sending answers. Throws Comm if no store
  /// records such a change.
  void replay(const Change& change);
  /// Returns the whole state except connections, as pieces of a snapshot. Their values are shared
  /// with the store, which copies them before it changes them.
  std::vector<Piece> save();
  /// Loads one piece of another store's snapshot. Pieces come in their order, before anything else.
  /// Throws Comm for an invalid piece.
  void load(const Bytes& words, const Payload& values);
  /// Ends recovery, after replay() and load(): the silence of clients is counted from `now_us`.
  void resume(std::int64_t now_us);

  /// Returns true once at least one client has come and every client has left or died.
  bool finished() const;
  /// Returns the number of dropped frames.
  std::int64_t dropped_frames() const { return answers_.dropped(); }
  /// Returns the server's status without its tables.
  ServerStatus status(std::int64_t now_us) const;
  /// Counts a frame that was dropped before receive().
  void count_dropped() { answers_.count_dropped(); }

 private:
  // Reports a change to on_change.
  void note(Change::Of of, std::uint64_t who, const Payload& words, const Payload& values);
  // Replays a change while the memory limit is disabled.
  void replay_freely(const Change& change);
  void take(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us);
  void take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us);
  // Returns the client's ClientSlot, which is created for a new session.
  ClientSlot& client_for(const Hello& hello);
  void forget_ended_clients();
  // Ends the sessions of clients that read too little.
  void end_overfull();
  void take_message(ClientSlot& client, const FromClient& message, const Payload& payload);
  void take_join(ClientSlot& client, const Join& join, bool is_reserved = false);
  // Keeps a join for the next training of the table's name.
  void hold_early(ClientSlot& client, const Join& join);
  void take_who(ClientSlot& client, const Who& who);
  void take_leave(ClientSlot& client, const Leave& leave);
  void answer_all(ClientSlot& client);
  void forget_tables_that_ended();
  void end_worker(int worker, const std::string& reason);
  // Ends a client and records the change.
  void end_session(ClientSlot& client, const std::string& reason);
  // Ends a client without recording it.
  void die(ClientSlot& client, const std::string& reason);
  void send_status(Peer to, std::uint32_t attempt, const Status& asked, std::int64_t now_us);

  const StoreOptions options_;
  Answers answers_;
  const std::shared_ptr<MemoryBudget> budget_;
  std::unique_ptr<StoreState> state_;
  std::unique_ptr<DenseTables> dense_;
  std::unique_ptr<SparseTables> sparse_;
  std::map<Peer, ClientSlot*> client_of_;
  std::int64_t received_bytes_ = 0;
  std::int64_t status_second_us_ = 0;  ///< begin of the second in which status requests are counted
  int statuses_sent_ = 0;
  std::int64_t looked_us_ = 0;
};

}  // namespace hetu::ps::server
