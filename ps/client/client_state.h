// What a client of the parameter servers keeps, whatever carries its messages: what is on its way
// to each server, and the pulls that are open. Base of the clients over ZeroMQ and within a
// process; tests put a transport beneath it that loses and repeats.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "ps/client/parameter_client.h"
#include "ps/server/messages.h"

namespace hetu::ps::client {

/// Throws InvalidArgument where a table or a member of it cannot be.
void check_table(const Table& about, int member);
/// Now, as comm::now_ns().
std::int64_t now_ns();

/// A ParameterClient without its transport: take() gives what is to be sent, receive() brings in.
///
/// Everything that wants an acknowledgement is kept until it has come. A line that has lost a
/// message, as its signs of life tell, or its connection, begins anew: hello, and then all of it
/// again, which the servers take once.
class ClientState : public ParameterClient {
 public:
  struct Outgoing {
    int server = 0;
    Bytes header;
    server::Payload payload;
  };

  int open(const Table& table, int member, const float* initial,
           const OptimizerStates* first = nullptr) override;
  void push(int table, std::vector<float> delta) override;
  void push(int table, std::vector<float> gradient, double rate) override;
  int open_rows(const SparseTable& table, int member) override;
  void push_rows(int table, Rows rows, double rate = 0, bool last = true) override;
  void set_rows(int table, const Rows& rows, int plane, std::int64_t updates) override;
  void pull_rows(int table, std::int64_t least, const RowPull& rows) override;
  void pull(int table, std::int64_t least, float* into, std::int64_t to_come) override;
  Pulled wait(int table, const std::function<std::string()>& what) override;
  OptimizerStates states(int table, float* values) override;
  void flush() override;
  void leave() override;

  /// Messages to send now, in order. Call it after each of the functions below and when ring() is
  /// called; from one thread at a time.
  std::vector<Outgoing> take();
  /// Takes a message that has come. One that no server sends ends the client.
  void receive(int server, const Bytes& header, const server::Payload& payload);
  /// To be called every kHeartbeatS.
  void beat();
  /// The connection to a server is lost; what was on it may be, too.
  void line_lost(int server);
  /// The client is dead; every later call throws.
  void die(Code code, const std::string& text);
  bool has_ended() const;
  /// Whether everything that was sent has been acknowledged and every pull answered.
  bool is_idle() const;

 protected:
  /// `servers`: how messages name them.
  ClientState(ParameterOptions options, std::vector<std::string> servers);

  /// Something is to be sent. Called without the lock, by the thread of the worker.
  virtual void ring() = 0;
  /// Sleeps until every server has answered. Throws Timeout, and what a server refuses.
  void greet();
  /// Whether a server has ever answered.
  bool is_known(int server) const;
  const std::string& name(int server) const {
    return lines_[static_cast<std::size_t>(server)].name;
  }

  const ParameterOptions options_;

 private:
  /// A message that stays until it is acknowledged.
  struct Item {
    server::FromClient message;
    server::Payload payload;
  };
  struct Line {
    std::string name;
    std::uint32_t attempt = 1;
    bool hello_due = true;
    bool welcome = false;
    bool known = false;  ///< has been welcomed by this server before
    bool beat_due = false;
    std::int64_t sent = 0;
    server::Received received;
    std::deque<Item> items;
    std::size_t next = 0;                  ///< first of items that is not sent
    std::int64_t bytes_on_way = 0;         ///< payload of those that are
    std::int64_t pushes = 0;               ///< of parts, ever
    std::vector<server::FromClient> once;  ///< nobody keeps them
  };
  /// The rows of a pull that one message asks for.
  struct RowChunk {
    int server = 0;
    std::vector<std::int64_t> places;  ///< among those of the pull
    bool newer = false;                ///< only those that are
  };
  /// A pull that is open.
  struct Open {
    std::int64_t least = 0;
    float* into = nullptr;
    int missing = 0;  ///< parts, or chunks
    std::vector<bool> has;
    std::vector<RowChunk> chunks;  ///< of a sparse table
    std::int64_t* versions = nullptr;
    Pulled found;
    std::string failure;
    std::optional<std::string> waits;  ///< for whom
  };
  struct OpenTable {
    OpenTable(Table table, int servers) : about(std::move(table)), split(about.elements, servers) {}
    Table about;
    server::Split split;
    int width = 0;                           ///< of a sparse table; else 0
    server::RowSplit rows;                   ///< of a sparse table
    std::vector<std::int64_t> pieces;        ///< of a sparse table, per server: sent
    const float* initial = nullptr;          ///< while it is opened
    const OptimizerStates* first = nullptr;  ///< the same
    int opening = 0;                         ///< servers and parts that have not answered yet
    std::string failure;                     ///< why it cannot be opened
    std::vector<bool> joined;                ///< per server
    std::int64_t clock = 0;
    std::int64_t pulls = 0;
    std::optional<Open> pull;
  };

  void push_all(int table, std::vector<float> values, double rate);
  void ask(int table, std::int64_t least, float* into, std::int64_t to_come, int plane);
  void send_first(int server, int table, int part);
  bool is_sparse(int number);
  void put_row_pull(int number, OpenTable& from, std::int64_t least, const RowPull& rows);
  void ask_all_rows(int number, std::int64_t least, float* into, std::int64_t to_come, int plane);
  int await_open(std::unique_lock<std::mutex>& lock, OpenTable& opened, int number);
  OpenTable& sparse_table(int number, const char* doing);
  static void check_ids(const OpenTable& of, const std::vector<std::int64_t>& ids);
  using Piece = std::function<server::FromClient(std::int64_t number, bool is_last)>;
  void put_rows(OpenTable& to, const Rows& rows, const Piece& header);
  void put_pieces(OpenTable& to, int server, const Rows& rows,
                  const std::vector<std::size_t>& places, const Piece& header);
  void take_line(int server, std::vector<Outgoing>& to);
  void take_message(int server, const server::FromServer& message, const server::Payload& payload);
  void take_joined(int server, const server::Joined& joined);
  void take_values(int server, const server::Values& values, const server::Payload& payload);
  void take_row_values(int server, const server::RowValues& values, const server::Payload& payload);
  void put(int server, server::FromClient message, server::Payload payload = {});
  /// Removes the items that are acknowledged; returns how many they were.
  int settle(int server, const std::function<bool(const server::FromClient&)>& is_settled);
  void begin_anew(Line& line);
  OpenTable& table(int number);
  OpenTable* known_table(int server, int number, int part);
  std::string who() const;
  void throw_if_dead() const;
  std::string whom_it_waits_for(std::unique_lock<std::mutex>& lock, int number);
  std::string busy_servers() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const std::uint64_t session_;
  std::vector<Line> lines_;
  std::deque<OpenTable> tables_;  ///< by number
  int unacknowledged_ = 0;        ///< updates of parts
  int leaving_ = 0;               ///< servers that have not said Left
  bool left_ = false;
  bool dead_ = false;
  Code code_ = Code::Comm;
  std::string failure_;
};

}  // namespace hetu::ps::client
