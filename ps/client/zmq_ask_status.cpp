#include <algorithm>
#include <chrono>

#include "ps/client/ask_status.h"
#include "ps/client/zmq_connection.h"

namespace hetu::ps {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kAgain{1};  // time until an unanswered question is repeated
constexpr long kLook_ms = 100;             // milliseconds between checks of a connection's events

/// Asks one server for page after page of its status.
class Question {
 public:
  Question(zmq::context_t& context, const ServerAddress& server, std::size_t number)
      : connection_(context, server, fmt::format("inproc://status-{}", number)) {
    connection_.forget();
    asked_.endpoint = server.endpoint;
  }

  bool is_open() const { return !whole_ && asked_.failure.empty(); }
  void* socket() { return connection_.socket().handle(); }
  /// Sends a question if it is due, and takes the answers that have arrived.
  void go_on() {
    while (is_open() && curve::receive_all(connection_.socket(), parts_)) {
      if (take()) again_ = Clock::now();
    }
    if ((connection_.events() & ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) != 0) {
      asked_.failure = "refuses this key";
    }
    if (!is_open() || Clock::now() < again_) return;
    again_ = Clock::now() + kAgain;
    ask();
  }
  AskedStatus end() {
    if (is_open()) asked_.failure = "does not answer";
    return std::move(asked_);
  }

 private:
  std::int64_t has() const { return static_cast<std::int64_t>(asked_.status.tables.size()); }

  void ask() {
    zmq::socket_t& socket = connection_.socket();
    const Bytes header = server::encode(1, server::FromClient(server::Status{has()}));
    socket.send(zmq::buffer(header), zmq::send_flags::sndmore | zmq::send_flags::dontwait);
    socket.send(zmq::message_t(), zmq::send_flags::dontwait);
  }

  /// Takes an answer. Returns true if it is the page that was asked for.
  bool take() {
    if (parts_.size() != 2) return false;
    try {
      const auto framed = server::decode_from_server(parts_[0].data<std::byte>(), parts_[0].size());
      const auto* is = std::get_if<server::StatusIs>(&framed.message);
      if (is == nullptr || is->first != has()) return false;
      server::ServerStatus page =
          server::decode_status(parts_[1].data<std::byte>(), parts_[1].size());
      std::vector<server::TableStatus> tables = std::move(asked_.status.tables);
      // Tables may end between two pages, so an empty page ends the list, too.
      const bool is_last = page.tables.empty();
      tables.insert(tables.end(), page.tables.begin(), page.tables.end());
      asked_.status = std::move(page);
      asked_.status.tables = std::move(tables);
      whole_ = is_last || has() >= asked_.status.tables_in_all;
      return true;
    } catch (const Error& error) {
      asked_.failure =
          fmt::format("does not answer like a server of this version of Hetu: {}", error.what());
      return false;
    }
  }

  Connection connection_;
  AskedStatus asked_;
  std::vector<zmq::message_t> parts_;
  bool whole_ = false;
  Clock::time_point again_ = Clock::now();
};

}  // namespace

std::vector<AskedStatus> ask_status(const std::string& address, double timeout_s) {
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                        std::chrono::duration<double>(timeout_s));
  zmq::context_t context{1};
  std::vector<AskedStatus> all;
  try {
    std::vector<std::unique_ptr<Question>> questions;
    for (const ServerAddress& server : servers_of(address)) {
      questions.push_back(std::make_unique<Question>(context, server, questions.size()));
    }
    while (Clock::now() < deadline) {
      std::vector<zmq_pollitem_t> items;
      for (const auto& question : questions) {
        question->go_on();
        if (question->is_open()) items.push_back({question->socket(), 0, ZMQ_POLLIN, 0});
      }
      if (items.empty()) break;
      zmq_poll(items.data(), static_cast<int>(items.size()), kLook_ms);
    }
    for (const auto& question : questions) all.push_back(question->end());
  } catch (const zmq::error_t& error) {
    fail(Code::Comm, "cannot connect to the parameter servers: {}", error.what());
  }
  return all;
}

}  // namespace hetu::ps
