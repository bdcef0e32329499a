// The lines of a client: what is sent, what is kept until it is acknowledged, what comes back.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "ps/client/client_state.h"

namespace hetu::ps::client {

namespace {

/// Payload that may be on its way to one server without an acknowledgement, so that signs of life
/// are never far behind it.
constexpr std::int64_t kWindowBytes = std::int64_t{32} << 20;
/// Values of a pull that the server is told to have come, so that it need not keep them; it keeps
/// fewer until the next pull.
constexpr std::size_t kManyBytes = std::size_t{64} << 10;

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<ClientState::Outgoing> ClientState::take() {
  const std::lock_guard lock(mutex_);
  std::vector<Outgoing> to;
  if (dead_) return to;
  for (std::size_t s = 0; s < lines_.size(); ++s) take_line(static_cast<int>(s), to);
  return to;
}

void ClientState::take_line(int number, std::vector<Outgoing>& to) {
  Line& line = lines_[static_cast<std::size_t>(number)];
  const auto send = [&](const server::FromClient& message, const server::Payload& payload,
                        std::int64_t serial) {
    to.push_back({number, server::encode(line.attempt, message, serial), payload});
  };
  if (line.hello_due) {
    line.hello_due = false;
    send(server::Hello{session_, options_.worker, number, static_cast<int>(lines_.size()),
                       line.known},
         {}, 0);
  }
  if (!line.welcome) return;
  for (const server::FromClient& message : std::exchange(line.once, {})) {
    send(message, {}, ++line.sent);
  }
  for (; line.next < line.items.size(); ++line.next) {
    const Item& item = line.items[line.next];
    const auto bytes = static_cast<std::int64_t>(item.payload.bytes);
    if (line.bytes_on_way > 0 && line.bytes_on_way + bytes > kWindowBytes) break;
    line.bytes_on_way += bytes;
    send(item.message, item.payload, ++line.sent);
  }
  if (line.beat_due) {
    line.beat_due = false;
    send(server::Beat{line.sent}, {}, 0);
  }
}

void ClientState::beat() {
  const std::lock_guard lock(mutex_);
  for (Line& line : lines_) (line.welcome ? line.beat_due : line.hello_due) = true;
}

void ClientState::line_lost(int server) {
  const std::lock_guard lock(mutex_);
  begin_anew(lines_[static_cast<std::size_t>(server)]);
}

void ClientState::begin_anew(Line& line) {
  ++line.attempt;
  line.hello_due = true;
  line.welcome = false;
  line.beat_due = false;
  line.sent = 0;
  line.received = {};
  line.next = 0;
  line.bytes_on_way = 0;
}

int ClientState::settle(int server,
                        const std::function<bool(const server::FromClient&)>& is_settled) {
  Line& line = lines_[static_cast<std::size_t>(server)];
  int settled = 0;
  for (std::size_t i = 0; i < line.items.size();) {
    if (!is_settled(line.items[i].message)) {
      ++i;
      continue;
    }
    if (i < line.next) {
      --line.next;
      line.bytes_on_way -= static_cast<std::int64_t>(line.items[i].payload.bytes);
    }
    line.items.erase(line.items.begin() + static_cast<std::ptrdiff_t>(i));
    ++settled;
  }
  return settled;
}

void ClientState::receive(int server, const Bytes& header, const server::Payload& payload) {
  std::string wrong;
  try {
    const server::Framed<server::FromServer> framed =
        server::decode_from_server(header.data(), header.size());
    const std::lock_guard lock(mutex_);
    Line& line = lines_[static_cast<std::size_t>(server)];
    if (dead_ || framed.attempt != line.attempt) return;  // from before the line was lost
    if (const auto* refusal = std::get_if<server::Refusal>(&framed.message)) {
      dead_ = true;
      code_ = refusal->code;
      failure_ = refusal->text;
    } else if (std::holds_alternative<server::Welcome>(framed.message)) {
      line.welcome = true;
      line.known = true;
    } else if (!line.welcome) {
      return;
    } else if (const auto* back = std::get_if<server::BeatBack>(&framed.message)) {
      if (!back->all_came || !line.received.all(back->sent)) begin_anew(line);
    } else {
      line.received.take(framed.serial);
      take_message(server, framed.message, payload);
    }
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
ClientState::OpenTable* ClientState::known_table(int server, int number, int part) {
  if (static_cast<std::size_t>(number) >= tables_.size()) return nullptr;
  OpenTable& found = tables_[static_cast<std::size_t>(number)];
  if (found.width > 0) return part == server ? &found : nullptr;
  if (part >= found.split.parts() || found.split.server(part) != server) return nullptr;
  return &found;
}

void ClientState::take_message(int server, const server::FromServer& message,
                               const server::Payload& payload) {
  const auto is_of = [](const auto* item, int table, int part) {
    return item != nullptr && item->table == table && item->part == part;
  };
  if (const auto* joined = std::get_if<server::Joined>(&message)) {
    take_joined(server, *joined);
  } else if (const auto* refused = std::get_if<server::NotJoined>(&message)) {
    settle(server, [&](const server::FromClient& item) {
      const auto* join = std::get_if<server::Join>(&item);
      return join != nullptr && join->table == refused->table;
    });
    if (static_cast<std::size_t>(refused->table) < tables_.size())
      tables_[static_cast<std::size_t>(refused->table)].failure = refused->text;
  } else if (const auto* initialised = std::get_if<server::Initialised>(&message)) {
    OpenTable* of = known_table(server, initialised->table, initialised->part);
    const int settled = settle(server, [&](const server::FromClient& item) {
      const auto* init = std::get_if<server::Init>(&item);
      return is_of(init, initialised->table, initialised->part) &&
             init->plane == initialised->plane;
    });
    if (of != nullptr) of->opening -= settled;
  } else if (const auto* pushed = std::get_if<server::Pushed>(&message)) {
    unacknowledged_ -= settle(server, [&](const server::FromClient& item) {
      const auto* push = std::get_if<server::Push>(&item);
      return is_of(push, pushed->table, pushed->part) && push->number <= pushed->number;
    });
  } else if (const auto* taken = std::get_if<server::PushedRows>(&message)) {
    unacknowledged_ -= settle(server, [&](const server::FromClient& item) {
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
    leaving_ -= settle(server, [](const server::FromClient& item) {
      return std::holds_alternative<server::Leave>(item);
    });
  }
}

void ClientState::take_joined(int server, const server::Joined& joined) {
  if (static_cast<std::size_t>(joined.table) >= tables_.size()) return;
  OpenTable& of = tables_[static_cast<std::size_t>(joined.table)];
  settle(server, [&](const server::FromClient& item) {
    const auto* join = std::get_if<server::Join>(&item);
    return join != nullptr && join->table == joined.table;
  });
  const bool is_opening = of.initial != nullptr || of.width > 0;
  if (!is_opening || of.joined[static_cast<std::size_t>(server)]) return;
  of.joined[static_cast<std::size_t>(server)] = true;
  --of.opening;
  if (!joined.wants_values) return;
  for (int p = of.split.first(server); p < of.split.first(server + 1); ++p) {
    send_first(server, joined.table, p);
  }
}

// The values of a part, and the optimizer's states where there are some.
void ClientState::send_first(int server, int table, int part) {
  OpenTable& of = tables_[static_cast<std::size_t>(table)];
  const int planes = of.first != nullptr ? 1 + static_cast<int>(of.first->states.size()) : 1;
  const std::int64_t updates = of.first != nullptr ? of.first->updates : 0;
  for (int plane = 0; plane < planes; ++plane) {
    const float* whole =
        plane == 0 ? of.initial : of.first->states[static_cast<std::size_t>(plane) - 1].data();
    const float* begin = whole + of.split.begin(part);
    const auto copy =
        std::make_shared<const std::vector<float>>(begin, begin + of.split.elements(part));
    const auto* data = reinterpret_cast<const std::byte*>(copy->data());
    put(server, server::Init{table, part, plane, planes, updates},
        {data, copy->size() * sizeof(float), copy});
    ++of.opening;
  }
}

void ClientState::take_values(int server, const server::Values& values,
                              const server::Payload& payload) {
  OpenTable* of = known_table(server, values.table, values.part);
  if (of == nullptr || of->width > 0 || !of->pull || of->pulls != values.number)
    return;  // of a pull before
  Open& pull = *of->pull;
  const auto part = static_cast<std::size_t>(values.part);
  const auto bytes = static_cast<std::size_t>(of->split.elements(values.part)) * sizeof(float);
  if (payload.bytes != bytes) {
    fail(Code::Comm, "{} bytes for part {} of table \"{}\", not {}", payload.bytes, values.part,
         of->about.name, bytes);
  }
  settle(server, [&](const server::FromClient& item) {
    const auto* asked = std::get_if<server::Pull>(&item);
    return asked != nullptr && asked->table == values.table && asked->part == values.part;
  });
  if (bytes >= kManyBytes) {
    lines_[static_cast<std::size_t>(server)].once.emplace_back(
        server::Got{values.table, values.part, values.number});
  }
  if (pull.has[part]) return;
  std::memcpy(pull.into + of->split.begin(values.part), payload.data, bytes);
  pull.found.updates[part] = values.updates;
  pull.has[part] = true;
  pull.found.pushes[part] = values.pushes;
  pull.found.arrival_ns = now_ns();
  --pull.missing;
}

}  // namespace hetu::ps::client
