// What a client sends and hears.

#include "ps/client/client_state.h"

namespace hetu::ps::client {

namespace {

/// Values of a pull that the server is told to have come, so that it need not keep them; it keeps
/// fewer until the next pull.
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
  line(server).begin_anew();
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
        fmt::format("{} got from {} what it cannot read: {}", who(), name(server), wrong));
  }
  changed_.notify_all();
}

// The table of a message from a server; nullptr if it is none of this client's, or not that
// server's part.
OpenTable* ClientState::known_table(int server, int number, int part) {
  if (static_cast<std::size_t>(number) >= tables_.size()) return nullptr;
  OpenTable& found = tables_[static_cast<std::size_t>(number)];
  return found.is_at(server, part) ? &found : nullptr;
}

void ClientState::take_message(int server, const server::FromServer& message,
                               const server::Payload& payload) {
  const auto is_of = [](const auto* item, int table, int part) {
    return item != nullptr && item->table == table && item->part == part;
  };
  if (const auto* refusal = std::get_if<server::Refusal>(&message)) {
    dead_ = true;
    code_ = refusal->code;
    failure_ = refusal->text;
  } else if (const auto* joined = std::get_if<server::Joined>(&message)) {
    take_joined(server, *joined);
  } else if (const auto* refused = std::get_if<server::NotJoined>(&message)) {
    line(server).settle([&](const server::FromClient& item) {
      const auto* join = std::get_if<server::Join>(&item);
      return join != nullptr && join->table == refused->table;
    });
    if (static_cast<std::size_t>(refused->table) < tables_.size())
      tables_[static_cast<std::size_t>(refused->table)].failure = refused->text;
  } else if (const auto* initialised = std::get_if<server::Initialised>(&message)) {
    OpenTable* of = known_table(server, initialised->table, initialised->part);
    const int settled = line(server).settle([&](const server::FromClient& item) {
      const auto* init = std::get_if<server::Init>(&item);
      return is_of(init, initialised->table, initialised->part) &&
             init->plane == initialised->plane;
    });
    if (of != nullptr) of->opening -= settled;
  } else if (const auto* pushed = std::get_if<server::Pushed>(&message)) {
    unacknowledged_ -= line(server).settle([&](const server::FromClient& item) {
      const auto* push = std::get_if<server::Push>(&item);
      return is_of(push, pushed->table, pushed->part) && push->number <= pushed->number;
    });
  } else if (const auto* taken = std::get_if<server::PushedRows>(&message)) {
    unacknowledged_ -= line(server).settle([&](const server::FromClient& item) {
      const auto* push = std::get_if<server::PushRows>(&item);
      const auto* set = std::get_if<server::SetRows>(&item);
      return (push != nullptr && push->table == taken->table && push->number <= taken->number) ||
             (set != nullptr && set->table == taken->table && set->number <= taken->number);
    });
  } else if (const auto* values = std::get_if<server::Values>(&message)) {
    take_values(server, *values, payload);
  } else if (const auto* rows = std::get_if<server::RowValues>(&message)) {
    take_row_values(server, *rows, payload);
  } else if (const auto* none = std::get_if<server::NoValues>(&message)) {
    OpenTable* of = known_table(server, none->table, none->part);
    if (of != nullptr && of->pull && of->pulls == none->number) of->pull->failure = none->text;
  } else if (const auto* waits = std::get_if<server::Waits>(&message)) {
    OpenTable* of = known_table(server, waits->table, waits->part);
    if (of != nullptr && of->pull) of->pull->waits = waits->text;
  } else if (std::holds_alternative<server::Left>(message)) {
    leaving_ -= line(server).settle(
        [](const server::FromClient& item) { return std::holds_alternative<server::Leave>(item); });
  }
}

void ClientState::take_joined(int server, const server::Joined& joined) {
  if (static_cast<std::size_t>(joined.table) >= tables_.size()) return;
  OpenTable& of = tables_[static_cast<std::size_t>(joined.table)];
  line(server).settle([&](const server::FromClient& item) {
    const auto* join = std::get_if<server::Join>(&item);
    return join != nullptr && join->table == joined.table;
  });
  const bool is_opening = of.initial != nullptr || of.is_sparse();
  if (!is_opening || of.joined[static_cast<std::size_t>(server)]) return;
  of.joined[static_cast<std::size_t>(server)] = true;
  --of.opening;
  if (!joined.wants_values) return;
  std::vector<Addressed> values = of.first_values(server);
  of.opening += static_cast<int>(values.size());
  put_all(std::move(values));
}

void ClientState::take_values(int server, const server::Values& values,
                              const server::Payload& payload) {
  OpenTable* of = known_table(server, values.table, values.part);
  if (of == nullptr || !of->take(values, payload)) return;  // of a pull before
  line(server).settle([&](const server::FromClient& item) {
    const auto* asked = std::get_if<server::Pull>(&item);
    return asked != nullptr && asked->table == values.table && asked->part == values.part;
  });
  if (payload.bytes < kManyBytes) return;
  line(server).put_once(server::Got{values.table, values.part, values.number});
}

void ClientState::take_row_values(int server, const server::RowValues& values,
                                  const server::Payload& payload) {
  OpenTable* of = known_table(server, values.table, server);
  if (of == nullptr || !of->take(server, values, payload)) return;
  line(server).settle([&](const server::FromClient& item) {
    const auto* asked = std::get_if<server::PullRows>(&item);
    return asked != nullptr && asked->table == values.table && asked->number == values.number &&
           asked->chunk == values.chunk;
  });
}

}  // namespace hetu::ps::client
