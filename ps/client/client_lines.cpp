// Sending and receiving.

#include "ps/client/client_state.h"

namespace hetu::ps::client {

namespace {

/// Size from which a client confirms the values of a pull, so that the server need not keep them.
/// Smaller values stay at the server until the next pull.
constexpr std::size_t kManyBytes = std::size_t{64} << 10;

}  // namespace

std::vector<Outgoing> ClientState::take() {
  const std::lock_guard lock(mutex_);
  std::vector<Outgoing> to;
  if (dead_) return to;
  for (Line& line : lines_) line.take(to);
  return to;
}

void ClientState::beat() {
  const std::lock_guard lock(mutex_);
  for (Line& line : lines_) line.beat();
}

void ClientState::line_lost(int server) {
  const std::lock_guard lock(mutex_);
  line(server).restart();
}

void ClientState::receive(int server, const Bytes& header, const server::Payload& payload) {
  std::string wrong;
  try {
    const server::Framed<server::FromServer> framed =
        server::decode_from_server(header.data(), header.size());
    const std::lock_guard lock(mutex_);
    if (!dead_ && line(server).hear(framed)) take_message(server, framed.message, payload);
  } catch (const Error& error) {
    wrong = error.what();
  }
  if (!wrong.empty()) {
    die(Code::Comm,
        fmt::format("{} received an invalid message from {}: {}", who(), name(server), wrong));
  }
  changed_.notify_all();
}

// Returns the table that a server's message is about. Returns nullptr if this client has no such
// table, or if the part is not on that server.
OpenTable* ClientState::known_table(int server, int number, int part) {
  if (static_cast<std::size_t>(number) >= tables_.size()) return nullptr;
  OpenTable& found = tables_[static_cast<std::size_t>(number)];
  return found.is_at(server, part) ? &found : nullptr;
}

void ClientState::take_message(int server, const server::FromServer& message,
                               const server::Payload& payload) {
  const int settled = line(server).settle(message);
  if (const auto* refusal = std::get_if<server::Refusal>(&message)) {
    dead_ = true;
    code_ = refusal->code;
    failure_ = refusal->text;
  } else if (const auto* joined = std::get_if<server::Joined>(&message)) {
    take_joined(server, *joined);
  } else if (const auto* refused = std::get_if<server::NotJoined>(&message)) {
    if (static_cast<std::size_t>(refused->table) < tables_.size())
      tables_[static_cast<std::size_t>(refused->table)].failure = refused->text;
  } else if (const auto* initialised = std::get_if<server::Initialised>(&message)) {
    OpenTable* of = known_table(server, initialised->table, initialised->part);
    if (of != nullptr) of->opening -= settled;
  } else if (std::holds_alternative<server::Pushed>(message) ||
             std::holds_alternative<server::PushedRows>(message)) {
    unacknowledged_ -= settled;
  } else if (const auto* values = std::get_if<server::Values>(&message)) {
    OpenTable* of = known_table(server, values->table, values->part);
    if (of != nullptr && of->take(*values, payload) && payload.bytes >= kManyBytes) {
      line(server).put_once(server::Got{values->table, values->part, values->number});
    }
  } else if (const auto* rows = std::get_if<server::RowValues>(&message)) {
    OpenTable* of = known_table(server, rows->table, server);
    if (of != nullptr) of->take(server, *rows, payload);
  } else if (const auto* none = std::get_if<server::NoValues>(&message)) {
    OpenTable* of = known_table(server, none->table, none->part);
    if (of != nullptr && of->pull && of->pulls == none->number) of->pull->failure = none->text;
  } else if (const auto* waits = std::get_if<server::Waits>(&message)) {
    OpenTable* of = known_table(server, waits->table, waits->part);
    if (of != nullptr && of->pull) of->pull->waits = waits->text;
  } else if (std::holds_alternative<server::Left>(message)) {
    leaving_ -= settled;
  }
}

void ClientState::take_joined(int server, const server::Joined& joined) {
  if (static_cast<std::size_t>(joined.table) >= tables_.size()) return;
  OpenTable& of = tables_[static_cast<std::size_t>(joined.table)];
  const bool is_opening = of.initial != nullptr || of.is_sparse();
  if (!is_opening || of.joined[static_cast<std::size_t>(server)]) return;
  of.joined[static_cast<std::size_t>(server)] = true;
  --of.opening;
  if (!joined.wants_values) return;
  std::vector<Addressed> values = of.first_values(server);
  of.opening += static_cast<int>(values.size());
  put_all(std::move(values));
}

}  // namespace hetu::ps::client
