// The state of a client of the parameter servers, independent of its transport: messages on their
// way to each server, and open pulls. Base class of the clients over ZeroMQ and within a process.
// Tests use it with a transport that loses and repeats messages.
#pragma once
#include <condition_variable>
#include <deque>
#include <mutex>

#include "ps/client/line.h"
#include "ps/client/open_table.h"
#include "ps/client/parameter_client.h"
#include "ps/server/messages.h"

namespace hetu::ps::client {

/// Checks the description of a table and of a member. Throws InvalidArgument.
void check_table(const Table& about, int member);

/// A ParameterClient without its transport. take() returns messages to send; receive() processes
/// messages that arrive.
///
/// The client keeps every message that needs an acknowledgement until it is acknowledged. It sends
/// the message again when its line restarts; the servers apply it once.
class ClientState : public ParameterClient {
 public:
  using Outgoing = client::Outgoing;

  int open(const Table& table, int member, const float* initial,
           const OptimizerStates* first = nullptr) override;
  std::vector<float> values_to_push(int table) override;
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

  /// Returns the messages to send, in order. Call it after each of the functions below and after
  /// ring(), from one thread at a time.
  std::vector<Outgoing> take();
  /// Processes a message. A message that no server sends ends the client.
  void receive(int server, const Bytes& header, const server::Payload& payload);
  /// Makes heartbeats due. Call it every kHeartbeatS.
  void beat();
  /// Reports that the connection to a server is lost. Messages on it may be lost, too.
  void line_lost(int server);
  /// Ends the client with an error, which every later call throws.
  void die(Code code, const std::string& text);
  bool has_ended() const;
  /// Returns true if every message is acknowledged and every pull answered.
  bool is_idle() const;

 protected:
  /// Creates a client. `servers` are the names of the servers for error texts.
  ClientState(ParameterOptions options, std::vector<std::string> servers);

  /// Tells the transport that there are messages to send. Called without the lock, by the worker's
  /// thread.
  virtual void ring() = 0;
  /// Blocks until every server has answered. Throws Timeout, and the error of a server that
  /// refuses.
  void greet();
  /// Returns true if a server has ever answered.
  bool is_known(int server) const;
  const std::string& name(int server) const {
    return lines_[static_cast<std::size_t>(server)].name();
  }

  const ParameterOptions options_;

 private:
  // Checks and queues an update of all parts.
  void push_all(int table, std::vector<float> values, double rate);
  // Begins a pull of a plane, of a dense or a sparse table.
  void ask(int table, std::int64_t least, float* into, std::int64_t to_come, int plane);
  // Begins a pull of all rows of a sparse table.
  void ask_all_rows(int number, std::int64_t least, float* into, int plane);
  // Sends the joins of a table and blocks until it is open.
  int open_as(int member, std::unique_lock<std::mutex>& lock, OpenTable& opened);
  int number_of_next() const;
  OpenTable& table(int number);
  OpenTable& sparse_table(int number, const char* doing);
  bool is_sparse(int number);
  // Queues updates and counts them as unacknowledged.
  void put_updates(std::vector<Addressed> updates);
  void put_all(std::vector<Addressed> messages);
  void take_message(int server, const server::FromServer& message, const server::Payload& payload);
  // Sends initial values if the server has none.
  void take_joined(int server, const server::Joined& joined);
  Line& line(int server) { return lines_[static_cast<std::size_t>(server)]; }
  // Returns the table that a server's message is about, or nullptr.
  OpenTable* known_table(int server, int number, int part);
  std::string who() const;
  void throw_if_dead() const;
  // Asks a server which members the current pull waits for, for an error text.
  std::string whom_it_waits_for(std::unique_lock<std::mutex>& lock, int number);
  // Returns the names of servers with unacknowledged messages, for an error text.
  std::string busy_servers() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Line> lines_;
  std::deque<OpenTable> tables_;  ///< by number
  int unacknowledged_ = 0;        ///< pushes of parts and pieces of rows
  int leaving_ = 0;               ///< servers that have not sent Left
  bool left_ = false;
  bool dead_ = false;
  Code code_ = Code::Comm;
  std::string failure_;
};

}  // namespace hetu::ps::client
