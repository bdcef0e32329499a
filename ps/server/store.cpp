#include "ps/server/store.h"

#include <algorithm>

#include "graph/base/log.h"
#include "ps/server/store_impl.h"

namespace hetu::ps::server {

namespace {
constexpr int kDropsLogged = 5;

}  // namespace

Store::Store(StoreOptions options) : options_(std::move(options)) {}
Store::~Store() = default;

void Store::send(Seat& seat, const FromServer& message, const Payload& payload) {
  if (seat.peer == 0) return;  // it will ask again
  const bool has_place = !std::holds_alternative<Welcome>(message) &&
                         !std::holds_alternative<BeatBack>(message) &&
                         !std::holds_alternative<Refusal>(message);
  const std::int64_t serial = has_place ? ++seat.sent : 0;
  outgoing_.push_back({seat.peer, encode(seat.attempt, message, serial), payload});
}

void Store::drop(const std::string& why) {
  changes_ = false;
  if (++dropped_ <= kDropsLogged) {
    log(Level::Warning, "parameter server {}: a message was dropped: {}", options_.server, why);
  }
}

void Store::note(Change::Of of, std::uint64_t who, const Payload& words, const Payload& values) {
  if (options_.on_change) options_.on_change({of, who, words, values});
}

std::vector<Store::Outgoing> Store::take() {
  for (const Outgoing& out : outgoing_) {
    sent_bytes_ += static_cast<std::int64_t>(out.header.size() + out.payload.bytes);
  }
  return std::exchange(outgoing_, {});
}

void Store::receive(Peer from, const Bytes& header, const Payload& payload, std::int64_t now_us) {
  received_bytes_ += static_cast<std::int64_t>(header.size() + payload.bytes);
  Framed<FromClient> framed;
  try {
    framed = decode_from_client(header.data(), header.size());
  } catch (const Error& error) {
    return drop(error.what());
  }
  if (const auto* hello = std::get_if<Hello>(&framed.message)) {
    changes_ = false;
    take_hello(from, framed.attempt, *hello, now_us);
    if (changes_) note(Change::Of::Message, hello->session, {header.data(), header.size()}, {});
    return;
  }
  if (const auto* status = std::get_if<Status>(&framed.message)) {
    return tell_status(from, framed.attempt, *status, now_us);
  }
  const auto found = seat_of_.find(from);
  if (found == seat_of_.end()) return drop("its sender has not said hello");
  Seat& seat = *found->second;
  if (framed.attempt != seat.attempt) return;  // from before the line was lost
  seat.heard_us = now_us;
  if (!seat.death.empty()) {
    return send(
        seat, Refusal{Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                              options_.server, seat.worker, seat.death)});
  }
  if (const auto* beat = std::get_if<Beat>(&framed.message)) {
    return send(seat, BeatBack{seat.received.all(beat->sent), seat.sent});
  }
  seat.received.take(framed.serial);
  // All that is missing comes again, in order: a pull before the push whose values it asks for.
  if (seat.received.missed) return;
  if (seat.left && !std::holds_alternative<Leave>(framed.message)) return;
  // Here alone a message is recorded: every kind, unless it is known to have changed nothing.
  changes_ = !std::holds_alternative<Who>(framed.message);
  take_message(seat, framed.message, payload);
  if (changes_) {
    note(Change::Of::Message, seat.session, {header.data(), header.size()}, payload);
  }
}

Store::Seat& Store::seat_for(const Hello& hello) {
  std::unique_ptr<Seat>& seat = seats_[hello.session];
  if (!seat) {
    seat = std::make_unique<Seat>();
    seat->session = hello.session;
    seat->worker = hello.worker;
    changes_ = true;
  }
  return *seat;
}

void Store::take_hello(Peer from, std::uint32_t attempt, const Hello& hello, std::int64_t now_us) {
  const auto refuse = [&](Code code, const std::string& text) {
    outgoing_.push_back({from, encode(attempt, Refusal{code, text}), {}});
  };
  if (hello.server != options_.server || hello.servers != options_.servers) {
    return refuse(
        Code::Config,
        fmt::format("worker {} looks for parameter server {} of {}; this is "
                    "{} of {}: give every worker the same HETU_SERVERS",
                    hello.worker, hello.server, hello.servers, options_.server, options_.servers));
  }
  if (seats_.count(hello.session) == 0) {
    if (const auto dead = died_before_.find(hello.worker); dead != died_before_.end()) {
      return refuse(Code::Comm, fmt::format("parameter server {} takes worker {} for dead: it {}",
                                            options_.server, hello.worker, dead->second));
    }
    if (hello.known) {
      return refuse(Code::Comm, fmt::format("parameter server {} was started anew and holds "
                                            "nothing of this training any more",
                                            options_.server));
    }
  }
  Seat& seat = seat_for(hello);
  if (attempt < seat.attempt || (attempt == seat.attempt && from != seat.peer)) return;
  if (attempt > seat.attempt) {
    seat_of_.erase(seat.peer);
    seat.peer = from;
    seat.attempt = attempt;
    seat.received = {};
    seat.sent = 0;
    seat_of_[from] = &seat;
  }
  seat.heard_us = now_us;
  send(seat, Welcome{});
}

void Store::take_message(Seat& seat, const FromClient& message, const Payload& payload) {
  if (const auto* init = std::get_if<Init>(&message)) return take_init(seat, *init, payload);
  if (const auto* push = std::get_if<Push>(&message)) return take_push(seat, *push, payload);
  if (const auto* rows = std::get_if<PushRows>(&message)) {
    return take_push_rows(seat, *rows, payload);
  }
  if (const auto* rows = std::get_if<SetRows>(&message)) return take_set_rows(seat, *rows, payload);
  if (const auto* rows = std::get_if<PullRows>(&message)) {
    return take_pull_rows(seat, *rows, payload);
  }
  if (payload.bytes != 0) return drop("values in a message that has none");
  if (const auto* join = std::get_if<Join>(&message)) take_join(seat, *join);
  if (const auto* pull = std::get_if<Pull>(&message)) take_pull(seat, *pull);
  if (const auto* got = std::get_if<Got>(&message)) take_got(seat, *got);
  if (const auto* who = std::get_if<Who>(&message)) take_who(seat, *who);
  if (const auto* leave = std::get_if<Leave>(&message)) take_leave(seat, *leave);
}

void Store::take_join(Seat& seat, const Join& join) {
  const auto refuse = [&](const std::string& text) {
    changes_ = false;
    send(seat, NotJoined{join.table, text});
  };
  if (const auto placed = seat.places.find(join.table); placed != seat.places.end()) {
    changes_ = false;
    return send(seat, Joined{join.table, !placed->second.table->has_values(options_.server)});
  }
  std::string fault = fault_of(join.rule, join.elements);
  if (fault.empty() && join.width > 0) fault = fault_of_rows(join.elements, join.width, join.rule);
  if (!fault.empty()) {
    return refuse(fmt::format("table \"{}\" of worker {}: {}", join.name, seat.worker, fault));
  }
  std::shared_ptr<TableState>& table = tables_[join.name];
  if (!table) table = make_table(join);
  Seat* holder = static_cast<std::size_t>(join.member) < table->members.size()
                     ? table->members[static_cast<std::size_t>(join.member)]
                     : nullptr;
  if (holder != nullptr && holder->gone()) {  // of the training before
    const bool is_held = std::any_of(early_.begin(), early_.end(), [&](const auto& held) {
      return held.first == &seat && held.second.table == join.table;
    });
    if (is_held) changes_ = false;
    if (!is_held) early_.emplace_back(&seat, join);
    return;
  }
  if (const std::string text = disagreement(*table, join); !text.empty()) {
    return refuse(fmt::format("worker {} opens table \"{}\" with {}: open it alike everywhere",
                              seat.worker, join.name, text));
  }
  if (holder != nullptr) {
    return refuse(
        fmt::format("worker {} opens table \"{}\" as member {}, which is worker {}; each "
                    "member opens it once",
                    seat.worker, join.name, join.member, holder->worker));
  }
  let_in(seat, join, table);
}

std::shared_ptr<Store::TableState> Store::make_table(const Join& join) const {
  auto table = std::make_shared<TableState>(
      TableState{.name = join.name,
                 .elements = join.elements,
                 .split = Split(join.elements, options_.servers),
                 .rule = join.rule,
                 .members = std::vector<Seat*>(static_cast<std::size_t>(join.members)),
                 .arriving = {},
                 .parts = {},
                 .width = join.width,
                 .first = join.first,
                 .rows = nullptr});
  if (join.width > 0) make_rows(*table);
  return table;
}

// What a member says of a table and what it is; "" if that is the same.
std::string Store::disagreement(const TableState& table, const Join& join) {
  if (join.elements != table.elements ||
      static_cast<std::size_t>(join.members) != table.members.size()) {
    return fmt::format("{} elements for {} members; it has {} for {}", join.elements, join.members,
                       table.elements, table.members.size());
  }
  if (join.width != table.width || !(join.first == table.first)) {
    return fmt::format("rows of {}; it has rows of {}{}", join.width, table.width,
                       join.width == table.width ? " that begin otherwise" : "");
  }
  if (!(join.rule == table.rule)) {
    const bool alike = describe(join.rule) == describe(table.rule);
    return fmt::format("{}; it has {}{}", describe(join.rule), describe(table.rule),
                       alike ? " of other settings" : "");
  }
  return "";
}

void Store::let_in(Seat& seat, const Join& join, const std::shared_ptr<TableState>& table) {
  table->members[static_cast<std::size_t>(join.member)] = &seat;
  seat.places[join.table] = {table, join.member};
  send(seat, Joined{join.table, !table->has_values(options_.server)});
}

void Store::take_who(Seat& seat, const Who& who) {
  constexpr int kNamed = 4;
  const auto placed = seat.places.find(who.table);
  const bool is_sparse = placed != seat.places.end() && placed->second.table->rows != nullptr;
  const Place* place = is_sparse ? &placed->second : place_of(seat, who.table, who.part, {}, false);
  if (place == nullptr) return;
  const TableState& table = *place->table;
  const auto found = table.parts.find(who.part);
  if (table.rows == nullptr && found == table.parts.end()) return;
  const std::vector<std::int64_t>& clocks =
      table.rows != nullptr ? table.rows->clocks : found->second.clocks;
  std::string text;
  int named = 0;
  for (std::size_t m = 0; m < table.members.size(); ++m) {
    const Seat* member = table.members[m];
    const std::int64_t clock = clocks[m];
    if (clock >= who.least || (member != nullptr && member->left)) continue;
    if (++named > kNamed) continue;
    if (named > 1) text += ", ";
    text += member == nullptr
                ? fmt::format("member {}, which has not come", m)
                : fmt::format("worker {} ({} updates of {})", member->worker, clock, who.least);
  }
  if (named > kNamed) text += fmt::format(" and {} more", named - kNamed);
  send(seat, Waits{who.table, who.part, text});
}

void Store::take_leave(Seat& seat, const Leave& leave) {
  changes_ = leave.pushes == seat.pushes && !seat.left;
  if (leave.pushes != seat.pushes) return;  // an update is on its way again
  send(seat, Left{});
  if (!changes_) return;
  seat.left = true;
  answer_all(seat);
  forget_tables_that_ended();
}

Store::Horizon Store::horizon_of(const TableState& table, const std::vector<std::int64_t>& clocks) {
  constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
  Horizon horizon{kFar, kFar, nullptr};
  for (std::size_t m = 0; m < table.members.size(); ++m) {
    const Seat* member = table.members[m];
    if (member != nullptr && member->left) continue;
    horizon.slowest = std::min(horizon.slowest, clocks[m]);
    if (member == nullptr || member->death.empty() || clocks[m] >= horizon.dead_clock) continue;
    horizon.dead = member;
    horizon.dead_clock = clocks[m];
  }
  return horizon;
}

std::string Store::death_of(const TableState& table, const Seat& waits, const Horizon& horizon,
                            std::int64_t least) {
  return fmt::format("worker {}, for whose update {} of table \"{}\" worker {} waits, {}",
                     horizon.dead->worker, least, table.name, waits.worker, horizon.dead->death);
}

}  // namespace hetu::ps::server
