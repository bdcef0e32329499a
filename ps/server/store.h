// A parameter server's rules without its socket and clock: tables, clocks, who waits and who is
// alive. Messages in, messages out. Driven by serve_parameters (ZeroMQ), by ps/client's
// local_servers.h, and by tests.
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

/// The answer to a message that comes while a store is made from its log: to a Hello that somebody
/// lives here, to all else none.
std::optional<Bytes> while_it_recovers(const std::byte* header, std::size_t bytes);

class DenseTables;
class SparseTables;
class Room;
struct StoreState;

/// The parts of all tables that one server holds. Times are microseconds of one monotonic clock.
///
/// A part adds each member's updates in the order of their numbers, whatever is lost, repeated or
/// reordered on the way: one that it has is acknowledged again, one that comes too early is not
/// taken. What adding means is the table's UpdateRule. A pull is answered at the moment at which
/// every member's clock has reached what it asks for. A member that left in order counts as
/// infinitely far; one that died fails whoever waits for it. When all members of a table have left
/// or died the table is forgotten, and its name is free for the next training, whose members wait
/// until then.
class Store {
 public:
  using Peer = server::Peer;
  using Outgoing = server::Outgoing;

  explicit Store(StoreOptions options);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Takes a message, header and payload. What no worker of this job would send is dropped and
  /// counted.
  void receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us);
  /// Looks for silent workers; call it at wakes_at_us().
  void tick(std::int64_t now_us);
  std::optional<std::int64_t> wakes_at_us() const;

  /// A worker is known to be dead, by its number (heturun sees it end); as if it had been silent.
  void worker_died(int worker, const std::string& reason);
  /// The same by its connection.
  void peer_died(Peer peer, const std::string& reason);

  /// Rows that somebody is to get once it has read what it was sent; call go_on() by and by.
  bool holds_back() const { return answers_.holds_back(); }
  void go_on();

  /// Messages to send since the last call, in order.
  std::vector<Outgoing> take() { return answers_.take(); }

  /// Takes a change of a store that is no more, as that one did, but answers nobody. Throws Comm:
  /// what no store has told.
  void replay(const Change& change);
  /// Whatever makes up this store now, but for connections; values are lent.
  std::vector<Piece> save();
  /// Takes the pieces that another store saved, in their order, before anything else. Throws Comm:
  /// not such a piece.
  void load(const Bytes& words, const Payload& values);
  /// After replay() and load(): whoever was there may be heard again from now on.
  void resume(std::int64_t now_us);

  /// True once someone has come and everyone who came has left or died.
  bool finished() const;
  std::int64_t dropped_frames() const { return answers_.dropped(); }
  /// Without its tables.
  ServerStatus status(std::int64_t now_us) const;
  /// A frame was dropped before it came here.
  void count_dropped() { answers_.count_dropped(); }

 private:
  void note(Change::Of of, std::uint64_t who, const Payload& words, const Payload& values);
  void replay_freely(const Change& change);
  void take(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us);
  void take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us);
  Seat& seat_for(const Hello& hello);
  void forget_seats_that_ended();
  void end_overfull();
  void take_message(Seat& seat, const FromClient& message, const Payload& payload);
  void take_join(Seat& seat, const Join& join, bool is_reserved = false);
  void hold_early(Seat& seat, const Join& join);
  void take_who(Seat& seat, const Who& who);
  void take_leave(Seat& seat, const Leave& leave);
  void answer_all(Seat& seat);
  void forget_tables_that_ended();
  void end_worker(int worker, const std::string& reason);
  void end_session(Seat& seat, const std::string& reason);
  void die(Seat& seat, const std::string& reason);
  void tell_status(Peer to, std::uint32_t attempt, const Status& asked, std::int64_t now_us);

  const StoreOptions options_;
  Answers answers_;
  const std::shared_ptr<Room> room_;
  std::unique_ptr<StoreState> state_;
  std::unique_ptr<DenseTables> dense_;
  std::unique_ptr<SparseTables> sparse_;
  std::map<Peer, Seat*> seat_of_;
  std::int64_t received_bytes_ = 0;
  std::int64_t status_second_us_ = 0;  ///< begin of the second in which so many were told
  int statuses_told_ = 0;
  std::int64_t looked_us_ = 0;
};

}  // namespace hetu::ps::server
