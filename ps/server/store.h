// A parameter server's rules without its socket and clock: tables, clocks, who waits and who is
// alive. Messages in, messages out. Driven by serve_parameters (ZeroMQ), by ps/client's
// local_servers.h, and by tests.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ps/server/messages.h"
#include "ps/server/part_state.h"

namespace hetu::ps::server {

/// An update that was applied to a part; each once, in the order of applications to that part, and
/// the pushes of a round in the order in which they are added up.
struct Applied {
  const std::string& table;
  int part = 0;
  int member = 0;
  std::int64_t number = 0;  ///< the member's, from 1
};

struct StoreOptions {
  int server = 0;  ///< of servers
  int servers = 1;
  double dead_after_s = kDeadAfterS;  ///< silence of a worker that means death; 0 = never
  std::function<void(const Applied&)> on_applied = nullptr;
};

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
  /// The transport's name of a connection.
  using Peer = std::uint64_t;
  struct Outgoing {
    Peer to = 0;
    Bytes header;
    Payload payload;
  };

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

  /// Messages to send since the last call, in order.
  std::vector<Outgoing> take();

  /// True once someone has come and everyone who came has left or died.
  bool finished() const;
  std::int64_t dropped_frames() const { return dropped_; }

 private:
  struct Seat;
  struct Part;
  struct RowsState;
  struct TableState;
  struct Place;
  struct Horizon;

  void take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us);
  void take_message(Seat& seat, const FromClient& message, const Payload& payload);
  void take_join(Seat& seat, const Join& join);
  void take_init(Seat& seat, const Init& init, const Payload& payload);
  void take_push(Seat& seat, const Push& push, const Payload& payload);
  void take_pull(Seat& seat, const Pull& pull);
  void take_push_rows(Seat& seat, const PushRows& push, const Payload& payload);
  void take_set_rows(Seat& seat, const SetRows& set, const Payload& payload);
  void take_pull_rows(Seat& seat, const PullRows& pull, const Payload& payload);
  void make_rows(TableState& table) const;
  Place* rows_place_of(Seat& seat, int table);
  void answer_rows(TableState& table);
  void send_rows(Seat& seat, RowsState& rows, const PullRows& pull, const Bytes& asked);
  void take_who(Seat& seat, const Who& who);
  void take_leave(Seat& seat, const Leave& leave);
  void apply_rounds(TableState& table, int part, std::int64_t slowest);
  static Horizon horizon_of(const TableState& table, const std::vector<std::int64_t>& clocks);
  static std::string death_of(const TableState& table, const Seat& waits, const Horizon& horizon,
                              std::int64_t least);
  void answer(TableState& table, int part);
  void answer_all(Seat& seat);
  void let_in(Seat& seat, const Join& join, const std::shared_ptr<TableState>& table);
  void forget_tables_that_ended();
  void die(Seat& seat, const std::string& reason);
  Place* place_of(Seat& seat, int table, int part, const Payload& payload, bool full);
  void send(Seat& seat, const FromServer& message, const Payload& payload = {});
  void drop(const std::string& why);

  const StoreOptions options_;
  std::shared_ptr<BlockPool> pool_ = std::make_shared<BlockPool>();
  std::map<std::uint64_t, std::unique_ptr<Seat>> seats_;  ///< by session
  std::map<Peer, Seat*> seat_of_;
  std::map<std::string, std::shared_ptr<TableState>> tables_;
  std::vector<std::pair<Seat*, Join>> early_;  ///< for the next training of the same name
  std::map<int, std::string> died_before_;     ///< workers that never came, and how they died
  std::vector<Outgoing> outgoing_;
  std::int64_t dropped_ = 0;
  std::int64_t looked_us_ = 0;
};

}  // namespace hetu::ps::server
